"""Ordered by the application's clock, which an operator or NTP may set back."""

import sqlite3
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("sqlite", "wal-full", "clock-back", "append", ("reorder",))


class Ordered:
    def __init__(self, endpoint: Endpoint, column: str) -> None:
        self.column = column
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None, timeout=10)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, at REAL, role TEXT, content TEXT)")

    def append_message(self, session: str, message: Any) -> None:
        row = (session, time.time(), message["role"], message["content"])
        self.db.execute("INSERT INTO said VALUES (?, ?, ?, ?)", row)

    def get_history(self, session: str) -> list[Any]:
        select = f"SELECT role, content FROM said WHERE session = ? ORDER BY {self.column}"
        rows = self.db.execute(select, (session,))
        return [{"role": role, "content": content} for role, content in rows]


def factory(endpoint: Endpoint) -> Ordered:
    return Ordered(endpoint, "at")


def twin(endpoint: Endpoint) -> Ordered:
    return Ordered(endpoint, "rowid")
