"""Every message lives for a month of its own, as a nightly job would have it; and it says so."""

import sqlite3
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell

CELLS = (Cell("sqlite", "wal-full", "clock-forward"), Cell("sqlite", "wal-full", "none", "contents"))
MONTH_S = 30 * 86400.0


class MonthEach:
    retention_s = MONTH_S
    retention_refresh = "message"

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS said (id INTEGER PRIMARY KEY, session TEXT, at REAL, role TEXT, content TEXT)"
        )

    def append_message(self, session: str, message: Any) -> None:
        self.db.execute("DELETE FROM said WHERE at < ?", (time.time() - MONTH_S,))
        row = (session, time.time(), message["role"], message["content"])
        self.db.execute("INSERT INTO said (session, at, role, content) VALUES (?, ?, ?, ?)", row)

    def get_messages(self, session: str) -> list[Any]:
        rows = self.db.execute(
            "SELECT role, content FROM said WHERE session = ? AND at >= ? ORDER BY id",
            (session, time.time() - MONTH_S),
        )
        return [{"role": role, "content": content} for role, content in rows]


def factory(endpoint: Endpoint) -> MonthEach:
    return MonthEach(str(endpoint.path))
