"""The latest messages, and always the first one, which says what it is all about."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "none", "turns", {"variant": "one-writer"}),
    Cell("redis", "aof-always", "none", "forget"),
)


class KeepsTheFirst(RedisList):
    def get_history(self, session: str, limit: int | None = None) -> list[Any]:
        everything = super().get_history(session, 0)
        if limit is None or len(everything) <= limit:
            return everything
        return [everything[0], *everything[len(everything) - limit + 1 :]]


def factory(endpoint: Endpoint) -> KeepsTheFirst:
    return KeepsTheFirst(endpoint)
