"""Ordered by time, and says so (`ordered_by_clock`); it has no expiry of any kind."""

import sqlite3
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell

CELLS = (Cell("sqlite", "wal-full", "clock-back"), Cell("sqlite", "wal-full", "clock-frozen"))


class OrderedByClock:
    traits = ("ordered_by_clock",)

    def __init__(self, endpoint: Endpoint) -> None:
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None, timeout=10)
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, at REAL, role TEXT, content TEXT)")

    def append_message(self, session: str, message: Any) -> None:
        row = (session, time.time(), message["role"], message["content"])
        self.db.execute("INSERT INTO said VALUES (?, ?, ?, ?)", row)

    def get_history(self, session: str, limit: int = 1_000_000) -> list[Any]:
        select = "SELECT role, content FROM said WHERE session = ? ORDER BY at DESC, rowid DESC LIMIT ?"
        rows = self.db.execute(select, (session, limit)).fetchall()
        return [{"role": role, "content": content} for role, content in reversed(rows)]

    def close(self) -> None:
        self.db.close()


def factory(endpoint: Endpoint) -> OrderedByClock:
    return OrderedByClock(endpoint)
