"""Erases a session from a SQLite file, and from its log.

A deleted row stays in its page, and pages that were split keep what was moved. So the rows are overwritten
(``secure_delete``), the file is rewritten (``VACUUM``), and the log is moved into it and truncated. That takes a
while and twice the space, and other writers wait for it.

The session's row stays, without its id: another process may know the row by its number, which must not become another
session's. Nothing can be appended to it, because its floor is the highest possible sequence.
"""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from recollect.erasure import NO_ID, Unreached, used_again
from recollect.errors import NotWritten
from recollect.stores.sqlite.file import ChosenPolicy, until
from recollect.stores.sqlite.forking import at_work
from recollect.stores.sqlite.rows import seal, session_row
from recollect.stores.sqlite.transactions import commit_failed

_BY_SESSION = ("recollect_turns", "recollect_fingerprints", "recollect_about")
_SEQUENCE_MAX = 2**32 - 1


def erase_from_file(
    path: Path, key: bytes, expect: int | None, policy: ChosenPolicy, timeout_s: float
) -> tuple[list[str], list[Unreached]]:
    """What was rewritten, and what was not. Only waiting for locks has a time limit, not the work itself."""
    with at_work(), closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA synchronous = {policy.synchronous}")
        if not until(time.monotonic() + timeout_s, lambda: connection.execute("BEGIN IMMEDIATE")):
            raise NotWritten(f"{path} was locked by another process for {timeout_s:g} s; nothing was erased")
        try:
            _erase_rows(connection, key, expect)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise commit_failed(path, error) from error
        return _rewrite(connection, path, timeout_s)


def rewrite_file(path: Path, policy: ChosenPolicy, timeout_s: float) -> tuple[list[str], list[Unreached]]:
    """The same if the rows are already empty."""
    with at_work(), closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA synchronous = {policy.synchronous}")
        return _rewrite(connection, path, timeout_s)


def _rewrite(
    connection: sqlite3.Connection, path: Path, timeout_s: float
) -> tuple[list[str], list[Unreached]]:
    reached: list[str] = []
    unreached: list[Unreached] = []
    for name, step in ((path.name, _write_anew), (f"{path.name}-wal", _cut_log)):
        why = step(connection, time.monotonic() + timeout_s)
        if why is None:
            reached.append(name)
        else:
            unreached.append(Unreached(name, why))
    return reached, unreached


def _erase_rows(connection: sqlite3.Connection, key: bytes, expect: int | None) -> None:
    found = session_row(connection, key)
    if found is None:
        return
    if expect is not None and found.last != expect:
        raise used_again()
    session = found.id
    connection.execute(
        "DELETE FROM recollect_messages WHERE place BETWEEN :session << 32 AND (:session << 32) + :most",
        {"session": session, "most": _SEQUENCE_MAX},
    )
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in tables.intersection(_BY_SESSION):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    connection.execute(
        "UPDATE recollect_sessions SET key = ?, floor = ?, ended = 'forgotten', expires_at = NULL WHERE id = ?",
        (NO_ID + os.urandom(16), _SEQUENCE_MAX, session),
    )
    seal(connection, session)


def _write_anew(connection: sqlite3.Connection, deadline: float) -> str | None:
    """Why it failed; None if it worked."""
    try:
        if until(deadline, lambda: connection.execute("VACUUM")):
            return None
    except sqlite3.Error as error:
        return f"VACUUM failed ({error}); erase again once there is room for a second copy of the file"
    return "another process had it locked; erase again"


def _cut_log(connection: sqlite3.Connection, deadline: float) -> str | None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        return None  # a rollback journal is deleted with each commit
    while True:
        try:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            return f"the log could not be moved into the file ({error}); erase again"
        if not busy:
            return None
        if time.monotonic() > deadline:
            return "another process was reading from it; erase again"
        time.sleep(0.005)
