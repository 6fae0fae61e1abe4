"""SQLite as the driver opens it: no PRAGMA at all."""

import sqlite3
from contextlib import closing
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell

CELLS = (
    Cell(
        "sqlite",
        "delete-extra",
        "power-loss",
    ),
    Cell("sqlite", "delete-full", "power-loss"),
)


class DefaultSettings:
    def __init__(self, endpoint: Endpoint) -> None:
        self.db = sqlite3.connect(str(endpoint.path), timeout=10)
        with self.db:
            self.db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, role TEXT, content TEXT)")

    def append_message(self, session: str, message: Any) -> None:
        with self.db:
            row = (session, message["role"], message["content"])
            self.db.execute("INSERT INTO said VALUES (?, ?, ?)", row)

    def get_history(self, session: str) -> list[Any]:
        select = "SELECT role, content FROM said WHERE session = ? ORDER BY rowid"
        with closing(self.db.execute(select, (session,))) as rows:
            return [{"role": role, "content": content} for role, content in rows]

    def close(self) -> None:
        self.db.close()


def factory(endpoint: Endpoint) -> DefaultSettings:
    return DefaultSettings(endpoint)
