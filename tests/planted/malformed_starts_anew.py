"""A store that takes a malformed file for one that is past help, and starts a new one. A moment later the old one could
be read again."""

import sqlite3
from pathlib import Path
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted(
    "sqlite",
    "wal-full",
    "refused",
    "turns",
    ("silent-reset", "lost-tail", "hole", "dropped", "lost-update"),
    variant="corrupt",
    asked_for=("--fault", "refused"),
)


class StartsAnew(SqliteRows):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.endpoint = endpoint

    def append_message(self, session: str, message: Any) -> None:
        try:
            super().append_message(session, message)
        except sqlite3.DatabaseError as error:
            if "malformed" not in str(error):
                raise
            self.close()
            for ending in ("", "-wal", "-shm"):
                Path(f"{self.endpoint.path}{ending}").unlink(missing_ok=True)
            super().__init__(self.endpoint)
            super().append_message(session, message)


def factory(endpoint: Endpoint) -> StartsAnew:
    return StartsAnew(endpoint)


def twin(endpoint: Endpoint) -> SqliteRows:
    return SqliteRows(endpoint)
