"""Reads page after page from the newest on, by offset: what is written meanwhile shifts the pages, and the last message
of one is the first of the next, too."""

from itertools import count
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted("sqlite", "wal-full", "concurrent-writers", "append", ("duplicate",), more={"sessions": 1})
PAGE = 5


class ByOffset(SqliteRows):
    def get_history(self, session: str) -> list[Any]:
        query = "SELECT role, content FROM said WHERE session = ? ORDER BY id DESC LIMIT ? OFFSET ?"
        found: list[Any] = []
        for page in count():
            rows = self.db.execute(query, (session, PAGE, page * PAGE)).fetchall()
            found += rows
            if len(rows) < PAGE:
                return found[::-1]
        return found


class ByCursor(SqliteRows):
    def get_history(self, session: str) -> list[Any]:
        query = "SELECT id, role, content FROM said WHERE session = ? AND id > ? ORDER BY id LIMIT ?"
        found, after = [], 0
        while rows := self.db.execute(query, (session, after, PAGE)).fetchall():
            found += [(role, content) for _, role, content in rows]
            after = rows[-1][0]
        return found


def factory(endpoint: Endpoint) -> ByOffset:
    return ByOffset(endpoint)


def twin(endpoint: Endpoint) -> ByCursor:
    return ByCursor(endpoint)
