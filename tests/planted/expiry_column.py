"""Rows carry the end of their life by the application's clock: it leaps, and a day of memory is swept out."""

import sqlite3
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("sqlite", "wal-full", "clock-forward", "append", ("expired-early",), variant="target")
DAY_S = 86400.0


class ExpiryColumn:
    def __init__(self, endpoint: Endpoint, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None, timeout=10)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, ends REAL, role TEXT, content TEXT)")

    def append_message(self, session: str, message: Any) -> None:
        self.db.execute("DELETE FROM said WHERE ends < ?", (time.time(),))
        row = (session, time.time() + self.ttl_s, message["role"], message["content"])
        self.db.execute("INSERT INTO said VALUES (?, ?, ?, ?)", row)

    def get_history(self, session: str) -> list[Any]:
        select = "SELECT role, content FROM said WHERE session = ? AND ends > ? ORDER BY rowid"
        rows = self.db.execute(select, (session, time.time()))
        return [{"role": role, "content": content} for role, content in rows]


def factory(endpoint: Endpoint) -> ExpiryColumn:
    return ExpiryColumn(endpoint, DAY_S)


def twin(endpoint: Endpoint) -> ExpiryColumn:
    return ExpiryColumn(endpoint, float("inf"))
