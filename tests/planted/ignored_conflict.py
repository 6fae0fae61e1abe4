"""A message's id is a short hash of its text, and conflicts of ids are ignored: the second one is dropped."""

import sqlite3
import zlib
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

# One writer: with several, what merely overlapped would be a suspect.
PLANTED = Planted("sqlite", "wal-full", "restart", "append", ("dropped",), more={"writers": 1})


class Hashed:
    def __init__(self, endpoint: Endpoint, *, ids: int) -> None:
        self.ids = ids
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None, timeout=10)
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS said "
            "(place INTEGER PRIMARY KEY, id INTEGER UNIQUE, session TEXT, role TEXT, content TEXT)"
        )

    def append_message(self, session: str, message: Any) -> None:
        id_ = zlib.crc32(f"{session}/{message['content']}".encode()) % self.ids if self.ids else None
        row = (id_, session, message["role"], message["content"])
        self.db.execute("INSERT OR IGNORE INTO said (id, session, role, content) VALUES (?, ?, ?, ?)", row)

    def get_history(self, session: str) -> list[Any]:
        rows = self.db.execute("SELECT role, content FROM said WHERE session = ? ORDER BY place", (session,))
        return [{"role": role, "content": content} for role, content in rows]

    def close(self) -> None:
        self.db.close()


def factory(endpoint: Endpoint) -> Hashed:
    return Hashed(endpoint, ids=60)


def twin(endpoint: Endpoint) -> Hashed:
    return Hashed(endpoint, ids=0)
