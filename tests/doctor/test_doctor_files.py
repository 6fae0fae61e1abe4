"""The doctor on files: SQLite in each journal mode, Chroma's folder and server, and the file system below."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.doctor import Diagnosis, Symptom, disk, examine, sqlite
from recollect.doctor.chroma import threshold_of
from recollect.errors import CannotOpen
from recollect.verify import engines
from tests.doctor.bytes import contents


def named(diagnosis: Diagnosis) -> dict[str, Symptom]:
    return {symptom.name: symptom for symptom in diagnosis.findings if symptom.level != "note"}


@pytest.mark.parametrize(
    ("mode", "journal", "told"),
    [
        ("wal", "wal", "WAL mode"),
        ("delete", "rollback", "one of delete, truncate"),
        ("truncate", "rollback", "truncate, by the empty journal"),
        ("persist", "rollback", "persist, by the journal"),
        ("memory", "rollback", "one of delete, truncate"),
        ("off", "rollback", "one of delete, truncate"),
    ],
)
async def test_each_journal_mode_while_it_is_in_use(
    tmp_path: Path, mode: str, journal: str, told: str
) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE memory (text TEXT)")
        connection.execute("INSERT INTO memory VALUES ('kept')")
        before = contents(tmp_path)
        diagnosis = await examine(f"sqlite:///{path}")
        assert contents(tmp_path) == before
        assert (await examine(str(path))).settings == diagnosis.settings
    assert (diagnosis.exit_code, diagnosis.policy) == (3, None)
    assert diagnosis.settings["journal"] == journal
    found = named(diagnosis)["synchronous-hidden"]
    assert told in found.sentence
    assert "belong" in found.sentence
    assert found.procedure
    if mode == "wal":
        assert int(diagnosis.settings["wal_bytes"]) > 0


async def test_the_log_of_a_file_behind_a_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "linked.db").symlink_to(tmp_path / "memory.db")
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE memory (text TEXT)")
        diagnosis = await examine(str(tmp_path / "links" / "linked.db"))
    assert int(diagnosis.settings["wal_bytes"]) > 0


async def test_a_wal_file_that_nobody_has_open_stays_alone(tmp_path: Path) -> None:
    """A read-only connection of SQLite's would leave -wal and -shm beside it."""
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE memory (text TEXT)")
    before = contents(tmp_path)
    assert list(before) == ["memory.db"]
    await examine(str(path))
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("policy", "code"), [("wal-full", 0), ("wal-normal", 1), ("delete-full", 1), ("delete-extra", 0)]
)
async def test_an_address_that_names_a_policy(tmp_path: Path, policy: str, code: int) -> None:
    path = tmp_path / "memory.db"
    path.touch()
    diagnosis = await examine(f"sqlite:///{path}?policy={policy}")
    assert (diagnosis.policy, diagnosis.exit_code) == (policy, code)
    assert list(named(diagnosis)) == ([f"policy-{policy}"] if code else [])


async def test_an_interrupted_transaction(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE memory (text TEXT)")
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO memory VALUES (?)", [("x" * 4000,)] * 50)
        diagnosis = await examine(str(path))
    assert "hot-journal" in {symptom.name for symptom in diagnosis.findings}


@pytest.mark.parametrize(
    ("mounts", "name", "level"),
    [
        ("30 1 0:27 / /data rw - tmpfs tmpfs rw", "disk-in-memory", "loss"),
        ("30 1 0:27 / / rw - overlay overlay rw", "disk-in-container-layer", "loss"),
        (
            "30 1 8:1 /var/lib/kubelet/pods/3f1c/volumes/kubernetes.io~empty-dir/d /data rw - ext4 /dev/sda1 rw",
            "disk-in-pod",
            "loss",
        ),
        ("30 1 0:27 / /data rw - fuse.fuse-overlayfs none rw", "disk-in-container-layer", "loss"),
        ("30 1 0:27 / /data rw - nfs4 server:/ rw", "disk-on-network", "cannot-tell"),
        ("1 1 0:1 / / rw - overlay overlay rw\n2 1 0:2 / /data rw - ext4 /dev/sda rw", None, None),
        ("1 1 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / /database rw - tmpfs tmpfs rw", None, None),
        (
            "1 1 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / /data/my\\040app rw - tmpfs tmpfs rw",
            "disk-in-memory",
            "loss",
        ),
        ("", "disk-not-visible", "note"),
    ],
)
def test_the_file_system(mounts: str, name: str | None, level: str | None) -> None:
    found = disk.look_at("/data/my app", mounts, ("move it",))
    assert (found and found.name, found and found.level) == (name, level)


def test_a_file_on_tmpfs_is_a_loss_whatever_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.touch()
    mounts = f"1 1 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / {tmp_path.resolve()} rw - tmpfs tmpfs rw"
    diagnosis = sqlite.diagnose(sqlite.read(path, "x", "wal-full", mounts))
    assert diagnosis.exit_code == 1
    assert named(diagnosis)["disk-in-memory"].window == "everything"


async def test_what_is_no_engine(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not a database")
    for address in (str(other), str(tmp_path), str(tmp_path / "nothing"), f"sqlite:///{other}"):
        with pytest.raises(CannotOpen):
            await examine(address)


@pytest.fixture(params=["embedded", "server"])
def chroma(request: pytest.FixtureRequest) -> Iterator[Any]:
    try:
        engine = engines.create("chroma", request.param)
    except engines.NotInstalled as missing:
        pytest.skip(str(missing))
    engine.start()
    yield engine
    engine.close()


async def test_chroma(chroma: Any) -> None:
    if chroma.policy == "server":
        place = f"{chroma.endpoint.url}/api/v2/tenants/default_tenant/databases/default_database/collections"
        with httpx.Client() as client:  # chromadb's own leaves connections open
            wanted = {"name": "memories", "configuration": {"hnsw": {"sync_threshold": 50}}}
            made = client.post(place, json=wanted).raise_for_status().json()
            row = {"ids": ["1"], "embeddings": [[1.0, 2.0]], "documents": ["kept"]}
            client.post(f"{place}/{made['id']}/add", json=row).raise_for_status()
    else:
        chroma.ask("add", "memories", ids=["1"], embeddings=[[1.0, 2.0]], documents=["kept"])
    folder = chroma.endpoint.path
    before = contents(folder)
    for address in {chroma.endpoint.url, str(folder)}:
        diagnosis = await examine(address)
        found = named(diagnosis)
        assert (diagnosis.engine, diagnosis.exit_code) == ("chroma", 1)
        assert list(found) == ["index-not-fsynced"]
        expected = "up to 50 records" if chroma.policy == "server" else "up to 1,000 records"
        assert expected in found["index-not-fsynced"].window
    assert contents(folder) == before


def test_a_threshold_wherever_it_is_kept() -> None:
    new = '{"defaults": {"hnsw": {"sync_threshold": 1}}, "keys": {"#embedding": {"hnsw": {"sync_threshold": 7}}}}'
    assert threshold_of("{}", new) == 7
    assert threshold_of('{"hnsw": {"sync_threshold": 20}}', None) == 20
    assert threshold_of(None, "not json") == 1000
