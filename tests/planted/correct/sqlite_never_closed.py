"""Ten lines on SQLite, as half of the examples on the net have it: a connection that is opened and never closed."""

import sqlite3
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell

CELLS = (
    Cell("sqlite", "wal-full", "explore"),
    Cell("sqlite", "wal-full", "power-loss"),
    Cell("sqlite", "wal-full", "kill-engine"),
    Cell("sqlite", "wal-full", "wipe-volume"),
)


class NeverClosed:
    def __init__(self, endpoint: Endpoint) -> None:
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, role TEXT, content TEXT)")

    def append_message(self, session: str, message: Any) -> None:
        self.db.execute("INSERT INTO said VALUES (?, ?, ?)", (session, message["role"], message["content"]))

    def get_history(self, session: str) -> list[Any]:
        rows = self.db.execute("SELECT role, content FROM said WHERE session = ? ORDER BY rowid", (session,))
        return [{"role": role, "content": content} for role, content in rows]


def factory(endpoint: Endpoint) -> NeverClosed:
    return NeverClosed(endpoint)
