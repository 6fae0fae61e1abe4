"""Takes text and nothing else, and its interface says so: no roles, no blocks, no fields to keep."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "none", "contents"),
    Cell("redis", "aof-always", "concurrent-writers", "contents"),
)


class Notes(RedisList):
    def append_message(self, session: str, message: str) -> None:
        super().append_message(session, message)

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return super().get_history(session, limit)


def factory(endpoint: Endpoint) -> Notes:
    return Notes(endpoint)
