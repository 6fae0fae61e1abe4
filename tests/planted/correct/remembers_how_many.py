"""A list in Redis. Each process remembers how many messages a session had, and says so once if the engine has fewer."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "evict", "append", {"sessions": 12}),
    Cell("redis", "aof-everysec", "power-loss", "append"),
)


class Gone(Exception):
    pass


class Remembering(RedisList):
    loss_errors = ("Gone",)

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.seen: dict[str, int] = {}

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        there, known = self.client.llen(self.key(session)), self.seen.get(session, 0)
        self.seen[session] = there
        if there < known:
            raise Gone(f"{session} had {known} messages and has {there}: restore a backup, or read again")
        return super().get_history(session, limit)

    def forget(self, session: str) -> None:
        super().forget(session)
        self.seen.pop(session, None)


def factory(endpoint: Endpoint) -> Remembering:
    return Remembering(endpoint)
