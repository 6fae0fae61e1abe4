"""How far an audit has come, in a small file from which an interrupted audit continues."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from recollect import private
from recollect.audit.finding import AuditFinding
from recollect.errors import Refused
from recollect.regular_files import read_file


class AuditProgress(msgspec.Struct, kw_only=True):
    """Counts and findings up to a cursor."""

    identity: str | None
    place: str
    cursor: str = ""
    sessions_done: bool = False
    done: bool = False
    sessions: int = 0
    messages: int = 0
    bytes: int = 0
    elapsed_s: float = 0.0
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    shards: dict[str, int] = msgspec.field(default_factory=dict)
    findings: list[AuditFinding] = msgspec.field(default_factory=list)


def load(path: Path | None, identity: str | None, place: str) -> AuditProgress:
    """Where the audit continues: at the beginning if there is no file, or if its audit was finished.

    A cursor is valid only for the server that gave it. After a restart of Redis the scan starts over, and earlier
    findings are dropped, because they will be found again.
    """
    new = AuditProgress(identity=identity, place=place)
    if path is None:
        return new
    try:
        found = msgspec.json.decode(read_file(path), type=AuditProgress)
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise Refused(f"{path}: the folder {path.parent} does not exist") from None
        return new
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"{path} is not the file of an audit ({error}); name another with --resume") from None
    if found.identity != identity:
        raise Refused(
            f"{path} is of an audit of another store ({found.identity}, this one is {identity}); delete it to start "
            "anew"
        )
    return new if found.done or found.place != place else found


encode = msgspec.json.Encoder().encode


def save(path: Path, progress: bytes) -> None:
    """Replaces the file's content with the encoded progress."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        private.write_artifact(scratch, progress)
        scratch.replace(path)
    except OSError as error:
        raise Refused(
            f"cannot write {path}: {error.strerror or error}; choose another file with --resume"
        ) from None
