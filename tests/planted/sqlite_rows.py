"""Rows in SQLite, as the policy of the cell has it: what planted stores are made from. No bug of its own."""

import sqlite3
from typing import Any

from recollect.verify.engines.endpoint import Endpoint


class SqliteRows:
    def __init__(self, endpoint: Endpoint) -> None:
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None, timeout=10)
        self.db.execute(f"PRAGMA synchronous={endpoint.settings['synchronous']}")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS said (id INTEGER PRIMARY KEY, session TEXT, role TEXT, content TEXT)"
        )

    def append_message(self, session: str, message: Any) -> None:
        row = (session, message["role"], message["content"])
        self.db.execute("INSERT INTO said (session, role, content) VALUES (?, ?, ?)", row)

    def get_history(self, session: str) -> list[Any]:
        rows = self.db.execute("SELECT role, content FROM said WHERE session = ? ORDER BY id", (session,))
        return [{"role": role, "content": content} for role, content in rows]

    def close(self) -> None:
        self.db.close()
