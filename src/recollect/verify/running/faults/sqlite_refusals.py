"""What SQLite says no with, provoked on the file of a running store.

BUSY     another process keeps the file locked
LOCKED   another connection in the store's own process keeps the tables. Only connections that share one cache are told
         this, at once and whatever their timeout; to a store with a cache of its own the neighbour is one more that is
         BUSY
CORRUPT  the first page of each table is damaged in the file, and put right again
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from recollect.verify.running.faults.faulted_run import FaultedRun

LOCKED_S = 1.0
NEIGHBOURS = 4
HELD_S = 0.4
BETWEEN_S = 0.05
DAMAGED_S = 0.4
ALONE_TIMEOUT_S = 10.0
_NO_PAGE = b"\xff"
"""No kind of page begins with this."""


def lock_file(run: FaultedRun) -> None:
    """Somebody else keeps the file for longer than impatient stores wait."""
    with _connected(_file_of(run)) as other:
        other.execute("BEGIN EXCLUSIVE")
        run.go_on(LOCKED_S)
        other.execute("ROLLBACK")


def lock_tables(run: FaultedRun) -> None:
    """Several times: of the neighbours in all processes one has the file, and the others' stores only wait for it."""
    for _ in range(NEIGHBOURS):
        run.clients.hold_tables(HELD_S)
        run.go_on(HELD_S)
        run.go_on(BETWEEN_S)


def damage_tables(run: FaultedRun) -> None:
    """Nobody can change a page that cannot be read, so what is put back is still right."""
    path = _file_of(run)
    # The descriptor is closed last: closing any descriptor of a file drops all locks that this process has on it.
    with path.open("r+b", buffering=0) as file, _connected(path) as other:
        with _alone(run, path, other):
            first_pages = _first_pages(other)
            before = {offset: os.pread(file.fileno(), 1, offset) for offset in first_pages}
            for offset in before:
                os.pwrite(file.fileno(), _NO_PAGE, offset)
        try:
            run.go_on(DAMAGED_S)
        finally:
            other.execute("BEGIN EXCLUSIVE")
            for offset, kind in before.items():
                os.pwrite(file.fileno(), kind, offset)
            _commit_something(other)


def _file_of(run: FaultedRun) -> Path:
    assert run.endpoint.path is not None
    return run.endpoint.path


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(
        sqlite3.connect(path, isolation_level=None, timeout=ALONE_TIMEOUT_S)
    ) as connection:
        yield connection


@contextlib.contextmanager
def _alone(run: FaultedRun, path: Path, other: sqlite3.Connection) -> Iterator[None]:
    """Nobody else can write, and nothing is in the log: what the file holds is what is read."""
    log = path.with_name(f"{path.name}-wal")
    end = time.monotonic() + ALONE_TIMEOUT_S
    while True:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.execute("BEGIN EXCLUSIVE")
        if not log.exists() or log.stat().st_size == 0:
            break
        other.execute("ROLLBACK")
        if time.monotonic() > end:
            run.skip(f"the log of {path.name} never was empty: somebody keeps reading from it")
    yield
    _commit_something(other)


def _commit_something(other: sqlite3.Connection) -> None:
    """Other connections drop the pages that they have cached when somebody has written."""
    (version,) = other.execute("PRAGMA user_version").fetchone()
    other.execute(f"PRAGMA user_version = {version}")
    other.execute("COMMIT")


def _first_pages(other: sqlite3.Connection) -> list[int]:
    """Where they begin in the file; never the file's own first page, which is not a table's."""
    (size,) = other.execute("PRAGMA page_size").fetchone()
    roots = other.execute("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND rootpage > 1")
    return [(root - 1) * size for (root,) in roots.fetchall()]
