"""A list in Redis. Each process remembers how many messages a session had, and says so once if the engine has fewer."""

import threading
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "evict", "append", {"sessions": 12}),
    Cell("redis", "aof-everysec", "power-loss", "append"),
    Cell("redis", "aof-everysec", "none", "forget", {"variant": "one-writer"}),
    Cell("redis", "aof-everysec", "none", "turns", {"variant": "several-callers"}),
)


class Gone(Exception):
    pass


class Remembering(RedisList):
    loss_errors = ("Gone",)

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.seen: dict[str, tuple[bytes | None, int]] = {}
        """How often it had been forgotten, and how many messages there were."""
        self.lock = threading.Lock()

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        key = self.key(session)
        with self.lock:  # what another caller sees meanwhile is newer
            forgotten, there = self.client.pipeline().get(f"{key}:forgotten").llen(key).execute()
            before, known = self.seen.get(session, (forgotten, 0))
            self.seen[session] = forgotten, there
        if there < known and forgotten == before:
            raise Gone(f"{session} had {known} messages and has {there}: restore a backup, or read again")
        return super().get_history(session, limit)

    def forget(self, session: str) -> None:
        key = self.key(session)
        self.client.pipeline().delete(key).incr(f"{key}:forgotten").execute()


def factory(endpoint: Endpoint) -> Remembering:
    return Remembering(endpoint)
