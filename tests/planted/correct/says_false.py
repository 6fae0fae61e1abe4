"""It does not wait for SQLite's lock, and returns whether the message was stored: who is told may try again."""

import sqlite3
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.sqlite_rows import SqliteRows

CELLS = (Cell("sqlite", "wal-full", "none", "turns", {"writers": 3, "sessions": 1}),)


class SaysFalse(SqliteRows):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.db.execute("PRAGMA busy_timeout=0")

    def append_message(self, session: str, message: Any) -> bool:  # type: ignore[override]
        try:
            super().append_message(session, message)
        except sqlite3.OperationalError:
            return False
        return True


def factory(endpoint: Endpoint) -> SaysFalse:
    return SaysFalse(endpoint)
