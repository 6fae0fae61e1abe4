"""With the disk full, messages stay in the process "until there is space", and the caller hears that all is well."""

import sqlite3
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted(
    "sqlite", "wal-full", "disk-full", "append", ("dropped", "lost-update", "lost-tail", "hole")
)


class Kept(SqliteRows):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.unsaved: list[tuple[str, Any]] = []

    def append_message(self, session: str, message: Any) -> None:
        try:
            super().append_message(session, message)
        except sqlite3.OperationalError:
            self.unsaved.append((session, message))

    def get_history(self, session: str) -> list[Any]:
        return super().get_history(session) + [said for owner, said in self.unsaved if owner == session]


def factory(endpoint: Endpoint) -> Kept:
    return Kept(endpoint)


def twin(endpoint: Endpoint) -> SqliteRows:
    return SqliteRows(endpoint)
