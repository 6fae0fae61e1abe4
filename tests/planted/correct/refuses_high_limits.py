"""A page of at most a hundred, as an API has it: who asks for more gets an error, and not fewer."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "none", "turns", {"variant": "one-writer"}),
    Cell("redis", "aof-always", "none", "trimmed", {"variant": "one-writer"}),
    Cell("redis", "aof-always", "kill-engine", "turns"),
    Cell("redis", "aof-everysec", "power-loss", "turns"),
)


class Pages(RedisList):
    def get_history(self, session: str, limit: int = 20) -> list[Any]:
        if not 0 < limit <= 100:
            raise ValueError(f"limit must be from 1 to 100, not {limit}")
        return super().get_history(session, limit)


def factory(endpoint: Endpoint) -> Pages:
    return Pages(endpoint)
