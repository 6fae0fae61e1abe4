"""Connects only when it is called, and tries again after a pause when another caller has the lock.

It sets `synchronous` itself and takes the file's journal mode: nothing says so before its first call.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell

CELLS = (
    Cell("sqlite", "delete-extra", "power-loss"),
    Cell("sqlite", "delete-extra", "explore"),
)
TRIES = 100


class RetriesWhenLocked:
    def __init__(self, endpoint: Endpoint) -> None:
        self.path = str(endpoint.path)

    def append_message(self, session: str, message: Any) -> None:
        row = (session, message["role"], message["content"])
        self.in_transaction(lambda db: db.execute("INSERT INTO said VALUES (?, ?, ?)", row))

    def get_history(self, session: str) -> list[Any]:
        select = "SELECT role, content FROM said WHERE session = ? ORDER BY rowid"
        rows = self.in_transaction(lambda db: db.execute(select, (session,)).fetchall())
        return [{"role": role, "content": content} for role, content in rows]

    def in_transaction(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        for _ in range(TRIES):
            try:
                return self.once(work)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
            time.sleep(0.01)
        raise TimeoutError("the memory is too busy")

    def once(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN IMMEDIATE")
            db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, role TEXT, content TEXT)")
            result = work(db)
            db.execute("COMMIT")
            return result


def factory(endpoint: Endpoint) -> RetriesWhenLocked:
    return RetriesWhenLocked(endpoint)
