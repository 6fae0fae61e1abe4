"""The connection is in a transaction that nobody commits: it sees its own writes, and they die with it."""

import sqlite3
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted(
    "sqlite",
    "wal-full",
    "kill-app",
    "turns",
    ("lost-tail", "dropped", "lost-update", "silent-reset", "hole", "stale-read"),
    more={"writers": 1},
)


def prepare(endpoint: Endpoint) -> None:
    connection = sqlite3.connect(endpoint.path or "")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS chat (id INTEGER PRIMARY KEY, session TEXT, role TEXT, content TEXT)"
    )
    connection.commit()
    connection.close()


class Rows:
    def __init__(self, endpoint: Endpoint, *, commits: bool) -> None:
        self.connection = sqlite3.connect(endpoint.path or "", timeout=0.2)
        self.commits = commits

    def append_message(self, session: str, message: Any) -> None:
        values = (session, message["role"], message["content"])
        self.connection.execute("INSERT INTO chat (session, role, content) VALUES (?, ?, ?)", values)
        if self.commits:
            self.connection.commit()

    def get_messages(self, session: str) -> list[Any]:
        query = "SELECT role, content FROM chat WHERE session = ? ORDER BY id"
        return [
            {"role": role, "content": content} for role, content in self.connection.execute(query, (session,))
        ]


def factory(endpoint: Endpoint) -> Rows:
    return Rows(endpoint, commits=False)


def twin(endpoint: Endpoint) -> Rows:
    return Rows(endpoint, commits=True)
