"""Returns its rows as SQLite gives them: tuples of role and content."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.sqlite_rows import SqliteRows

CELLS = (
    Cell("sqlite", "wal-full", "none", "turns"),
    Cell("sqlite", "wal-full", "none", "contents", {"variant": "one-writer"}),
)


class PlainRows(SqliteRows):
    def get_history(self, session: str) -> list[Any]:
        query = "SELECT role, content FROM said WHERE session = ? ORDER BY id"
        return self.db.execute(query, (session,)).fetchall()


def factory(endpoint: Endpoint) -> PlainRows:
    return PlainRows(endpoint)
