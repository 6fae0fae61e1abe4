"""Ordered by the application's clock, which an operator or NTP may set back."""

import sqlite3
import time
from typing import Any

from recollect.verify.engines import Endpoint

DECLARES = {"engine": "sqlite", "policy": "wal-full", "fault": "clock-back", "anomaly": "reorder"}


class Store:
    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=10)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, at REAL, role TEXT, content TEXT)")

    def append_message(self, session: str, message: Any) -> None:
        row = (session, time.time(), message["role"], message["content"])
        self._db.execute("INSERT INTO said VALUES (?, ?, ?, ?)", row)

    def get_history(self, session: str) -> list[Any]:
        rows = self._db.execute("SELECT role, content FROM said WHERE session = ? ORDER BY at", (session,))
        return [{"role": role, "content": content} for role, content in rows]


def make(endpoint: Endpoint) -> Store:
    return Store(str(endpoint.path))
