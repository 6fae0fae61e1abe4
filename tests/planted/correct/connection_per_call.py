"""A connection for every call, as a web framework without a pool has it: with the disk full, reading fails too; after a
failed sync, the next connection goes on behind what the kernel has forgotten."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell

CELLS = (
    Cell("sqlite", "wal-full", "disk-full"),
    Cell("sqlite", "wal-full", "none", "contents"),
    Cell("sqlite", "wal-full", "power-loss"),
    Cell("sqlite", "wal-full", "fsync-error"),
)


class PerCall:
    def __init__(self, endpoint: Endpoint) -> None:
        self.path = str(endpoint.path)
        with self.connected() as db:
            db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, role TEXT, content TEXT)")

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            yield db
        finally:
            db.close()

    def append_message(self, session: str, message: Any) -> None:
        with self.connected() as db:
            db.execute("INSERT INTO said VALUES (?, ?, ?)", (session, message["role"], message["content"]))

    def get_history(self, session: str) -> list[Any]:
        with self.connected() as db:
            select = "SELECT role, content FROM said WHERE session = ? ORDER BY rowid"
            return [{"role": role, "content": content} for role, content in db.execute(select, (session,))]


def factory(endpoint: Endpoint) -> PerCall:
    return PerCall(endpoint)
