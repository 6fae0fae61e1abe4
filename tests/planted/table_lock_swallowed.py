"""A store whose connections share one cache, where a locked table is an error at once, whatever the timeout; this one
goes on as if the message was stored."""

import contextlib
import sqlite3
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted(
    "sqlite",
    "wal-full",
    "refused",
    "turns",
    ("lost-tail", "hole", "dropped", "lost-update"),
    variant="table-locked",
    asked_for=("--fault", "refused"),
)


class SharedCache(SqliteRows):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.db.close()
        self.db = sqlite3.connect(
            f"file:{endpoint.path}?cache=shared", uri=True, isolation_level=None, timeout=10
        )
        self.db.execute(f"PRAGMA synchronous={endpoint.settings['synchronous']}")


class Swallowing(SharedCache):
    def append_message(self, session: str, message: Any) -> None:
        with contextlib.suppress(sqlite3.OperationalError):
            super().append_message(session, message)


def factory(endpoint: Endpoint) -> Swallowing:
    return Swallowing(endpoint)


def twin(endpoint: Endpoint) -> SharedCache:
    return SharedCache(endpoint)
