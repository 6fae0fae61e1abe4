"""One thread has the only writing connection, WAL and NORMAL, and callers wait for its commits, as with aiosqlite."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell

CELLS = (Cell("sqlite", "wal-full", "power-loss"), Cell("sqlite", "wal-full", "explore"))


class WriterThread:
    def __init__(self, endpoint: Endpoint) -> None:
        self.path = str(endpoint.path)
        self.db: sqlite3.Connection | None = None
        self.thread = ThreadPoolExecutor(1)
        self.thread.submit(self.open).result()

    def open(self) -> None:
        self.db = sqlite3.connect(self.path, timeout=10)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, role TEXT, content TEXT)")

    def append_message(self, session: str, message: Any) -> None:
        self.thread.submit(self.insert, (session, message["role"], message["content"])).result()

    def insert(self, row: tuple[str, str, str]) -> None:
        assert self.db is not None
        with self.db:
            self.db.execute("INSERT INTO said VALUES (?, ?, ?)", row)

    def get_history(self, session: str) -> list[Any]:
        select = "SELECT role, content FROM said WHERE session = ? ORDER BY rowid"
        with closing(sqlite3.connect(self.path, timeout=10)) as db:
            return [{"role": role, "content": content} for role, content in db.execute(select, (session,))]

    def close(self) -> None:
        assert self.db is not None
        self.thread.submit(self.db.close).result()
        self.thread.shutdown()


def factory(endpoint: Endpoint) -> WriterThread:
    return WriterThread(endpoint)
