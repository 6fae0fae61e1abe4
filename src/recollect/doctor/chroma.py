"""Chroma: rows are SQLite transactions, the vector index beside them is a file that is never fsynced.

No setting changes that, so there is one symptom, with its size: how many records an index may miss, and in which
collections. A folder is read from its SQLite file, over a read-only connection (a rollback journal needs no
shared memory); a server is asked with GET requests.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import ssl
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recollect.doctor import disk
from recollect.doctor.diagnosis import Diagnosis, Symptom, ordered
from recollect.doctor.sqlite import WAL_VERSION
from recollect.errors import CannotOpen, EngineUnavailable
from recollect.filesystems import mountinfo_of
from recollect.guarantees import promise
from recollect.raw_reading import first_bytes

DATABASE = "chroma.sqlite3"
SYNC_THRESHOLD = 1000
"""Chroma's own default."""
_PLACE = "/api/v2/tenants/default_tenant/databases/default_database/collections"
_REBUILD = (
    "keep the messages themselves elsewhere and treat the index as rebuildable: `open_recall` does, and rebuilds it",
    "after a crash compare count() with what query() can find; if they differ, make a new collection from the "
    "rows (get(include=['documents', 'embeddings', 'metadatas'])) and switch to it",
    "have one process write: several writers leave rows that query() never finds",
)
ON_A_DISK = ("stop Chroma, copy the whole folder to a disk or a volume, and start it there",)


@dataclass(frozen=True)
class ChromaAnswers:
    address: str
    policy: str
    version: str
    thresholds: dict[str, int] | None
    """`sync_threshold` of each collection; None if they cannot be read."""
    why_not: str
    journal: str | None
    folder: str | None
    mounts: str | None


def examine_folder(path: Path, address: str) -> Diagnosis:
    file = path / DATABASE
    if not file.is_file():
        raise CannotOpen(f"{address}: no {DATABASE} in it, so it is not a Chroma folder")
    header = first_bytes(file, 100)
    wal = len(header) > 18 and header[18] == WAL_VERSION
    thresholds, why_not = (None, "the file is in WAL mode") if wal else _collections(file)
    return diagnose(
        ChromaAnswers(
            address=address,
            policy="embedded",
            version="",
            thresholds=thresholds,
            why_not=why_not,
            journal="wal" if wal else "rollback",
            folder=str(path.resolve()),
            mounts=mountinfo_of(),
        )
    )


def _collections(file: Path) -> tuple[dict[str, int] | None, str]:
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=2)) as database:
            rows = database.execute("SELECT name, config_json_str, schema_str FROM collections").fetchall()
    except sqlite3.Error as error:
        return None, str(error)
    return {name: threshold_of(config, schema) for name, config, schema in rows}, ""


def threshold_of(*documents: str | None) -> int:
    """The `sync_threshold` that a collection's configuration names, wherever its release keeps it."""
    for document in documents:
        try:
            found = _find(json.loads(document or "{}"))
        except ValueError:
            continue
        if found is not None:
            return found
    return SYNC_THRESHOLD


def _find(value: Any) -> int | None:
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("sync_threshold"), int):
        return int(value["sync_threshold"])
    # The settings of the collection's own embedding come before the defaults.
    order = sorted(value, key=lambda name: name == "defaults")
    return next((found for name in order if (found := _find(value[name])) is not None), None)


def examine_server(url: str, shown: str, timeout_s: float) -> Diagnosis:
    if _get(url, shown, "/api/v2/heartbeat", timeout_s) is None:
        raise CannotOpen(f"{shown}: does not answer as a Chroma server does")
    version = _get(url, shown, "/api/v2/version", timeout_s)
    listed = _get(url, shown, _PLACE, timeout_s)
    thresholds = None
    if isinstance(listed, list):
        thresholds = {
            str(one.get("name")): threshold_of(
                json.dumps(one.get("configuration_json")), json.dumps(one.get("schema"))
            )
            for one in listed
        }
    return diagnose(
        ChromaAnswers(
            address=shown,
            policy="server",
            version=version if isinstance(version, str) else "",
            thresholds=thresholds,
            why_not="" if thresholds is not None else "the server does not list its collections",
            journal=None,
            folder=None,
            mounts=None,
        )
    )


def _get(url: str, shown: str, path: str, timeout_s: float) -> Any:
    """The decoded answer; None when the server refuses it."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        with closing(kind(parts.hostname or "localhost", parts.port, timeout=timeout_s)) as connection:
            connection.request("GET", f"{parts.path.rstrip('/')}{path}")
            response = connection.getresponse()
            body = response.read()
    except (OSError, http.client.HTTPException, ssl.SSLError, ValueError) as error:
        raise EngineUnavailable(f"{shown}: {str(error) or type(error).__name__}") from None
    try:
        return json.loads(body) if response.status == 200 else None
    except ValueError:
        return None


def diagnose(answers: ChromaAnswers) -> Diagnosis:
    symptoms = [
        _index(answers),
        _hidden(answers),
        _empty_again(),
        disk.look_at(answers.folder or "", answers.mounts, ON_A_DISK),
    ]
    settings = {"journal": answers.journal} if answers.journal else {}
    settings |= {
        f"sync_threshold of {name}": str(value) for name, value in (answers.thresholds or {}).items()
    }
    return Diagnosis(
        address=answers.address,
        engine="chroma",
        version=answers.version,
        policy=answers.policy,
        settings=settings,
        findings=ordered(symptoms),
    )


def _index(answers: ChromaAnswers) -> Symptom:
    given = promise("chroma", answers.policy, "power-loss")
    threshold = max((answers.thresholds or {}).values(), default=SYNC_THRESHOLD)
    return Symptom(
        name="index-not-fsynced",
        level="loss",
        sentence="can lose acknowledged embeddings from the vector index, though not the documents: its files "
        "are never fsynced and are rewritten in place. After a crash query() may silently find fewer than "
        "count() says, or the collection may be unreadable when it died while writing them",
        when=("kill-engine", "power-loss"),
        window=f"up to {threshold:,} records (sync_threshold) a collection, more when the index files are torn",
        setting="no setting of Chroma's changes this",
        procedure=_REBUILD,
        source=given.source,
    )


def _hidden(answers: ChromaAnswers) -> Symptom | None:
    if answers.thresholds is not None:
        return None
    return Symptom(
        name="collections-hidden",
        level="cannot-tell",
        sentence=f"cannot tell how much an index may miss: the collections cannot be read ({answers.why_not})",
        procedure=("run it again while nobody writes, or on the engine's own machine",),
    )


def _empty_again() -> Symptom:
    return Symptom(
        name="opens-empty",
        level="note",
        sentence="a deleted or swapped folder is opened as an empty one, without complaint",
        procedure=("keep the truth in a store with a witness: open_store(url, witness=path)",),
    )
