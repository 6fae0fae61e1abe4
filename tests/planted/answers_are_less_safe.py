"""Answers are kept in a database of their own that is not synced ("one can ask again"): they become gaps."""

import sqlite3
from pathlib import Path
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("sqlite", "wal-full", "power-loss", "turns", ("hole",))


def beside(endpoint: Endpoint) -> Path:
    assert endpoint.path is not None
    return endpoint.path.with_name("answers.db")


def prepare(endpoint: Endpoint) -> None:
    for path, columns in (
        (endpoint.path, "id INTEGER PRIMARY KEY, session TEXT, role TEXT, content TEXT"),
        (beside(endpoint), "id INTEGER PRIMARY KEY, content TEXT"),
    ):
        db = sqlite3.connect(str(path))
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"CREATE TABLE said ({columns})")
        db.close()


class TwoDatabases:
    def __init__(self, endpoint: Endpoint, *, answers: str) -> None:
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None, timeout=10)
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute("ATTACH ? AS answers", (str(beside(endpoint)),))
        self.db.execute(f"PRAGMA answers.synchronous={answers}")

    def append_message(self, session: str, message: Any) -> None:
        asked = message["role"] == "user"
        row = (session, message["role"], message["content"] if asked else None)
        insert = "INSERT INTO main.said (session, role, content) VALUES (?, ?, ?)"
        number = self.db.execute(insert, row).lastrowid
        if not asked:
            self.db.execute("INSERT INTO answers.said VALUES (?, ?)", (number, message["content"]))

    def get_history(self, session: str) -> list[Any]:
        rows = self.db.execute(
            "SELECT asked.role, coalesce(asked.content, answered.content) AS text FROM main.said AS asked"
            " LEFT JOIN answers.said AS answered ON answered.id = asked.id"
            " WHERE asked.session = ? AND text IS NOT NULL ORDER BY asked.id",
            (session,),
        )
        return [{"role": role, "content": content} for role, content in rows]


def factory(endpoint: Endpoint) -> TwoDatabases:
    return TwoDatabases(endpoint, answers="NORMAL")


def twin(endpoint: Endpoint) -> TwoDatabases:
    return TwoDatabases(endpoint, answers="FULL")
