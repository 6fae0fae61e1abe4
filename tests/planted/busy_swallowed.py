"""A store that does not wait for SQLite's lock: if another one is writing, the message is dropped and acknowledged."""

import contextlib
import sqlite3
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted(
    "sqlite", "wal-full", "none", "turns", ("dropped", "lost-update"), more={"writers": 3, "sessions": 1}
)


class Impatient(SqliteRows):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.db.execute("PRAGMA busy_timeout=0")

    def append_message(self, session: str, message: Any) -> None:
        with contextlib.suppress(sqlite3.OperationalError):
            super().append_message(session, message)


def factory(endpoint: Endpoint) -> Impatient:
    return Impatient(endpoint)


def twin(endpoint: Endpoint) -> SqliteRows:
    return SqliteRows(endpoint)
