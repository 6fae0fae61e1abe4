"""SQLite rows whose texts are in a second file beside the first: a backup of the database has none of them."""

import sqlite3
from pathlib import Path
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted(
    "sqlite",
    "wal-full",
    "restore",
    "turns",
    ("silent-reset",),
    twin_status="exposed",
    asked_for=("--fault", "restore"),
)


class TwoFiles:
    def __init__(self, endpoint: Endpoint) -> None:
        path = Path(str(endpoint.path))
        self.db = sqlite3.connect(str(path), isolation_level=None, timeout=10)
        self.db.execute("CREATE TABLE IF NOT EXISTS said (id INTEGER PRIMARY KEY, session TEXT, role TEXT)")
        self.texts = sqlite3.connect(str(path.with_name("texts.db")), isolation_level=None, timeout=10)
        self.texts.execute("CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, content TEXT)")

    def append_message(self, session: str, message: Any) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        with self.db:
            row = self.db.execute(
                "INSERT INTO said (session, role) VALUES (?, ?)", (session, message["role"])
            )
            self.texts.execute(
                "INSERT OR REPLACE INTO texts VALUES (?, ?)", (row.lastrowid, message["content"])
            )

    def get_history(self, session: str) -> list[Any]:
        texts = dict(self.texts.execute("SELECT id, content FROM texts"))
        rows = self.db.execute("SELECT id, role FROM said WHERE session = ? ORDER BY id", (session,))
        return [{"role": role, "content": texts[row]} for row, role in rows if row in texts]

    def close(self) -> None:
        self.db.close()
        self.texts.close()


def factory(endpoint: Endpoint) -> TwoFiles:
    return TwoFiles(endpoint)


def twin(endpoint: Endpoint) -> SqliteRows:
    return SqliteRows(endpoint)
