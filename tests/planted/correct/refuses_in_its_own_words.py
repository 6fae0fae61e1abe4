"""It refuses high limits with an error of its own, and sessions that do not exist with another."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "none", "turns", {"variant": "one-writer"}),
    Cell("redis", "aof-always", "none", "trimmed", {"variant": "one-writer"}),
)


class BadRequest(Exception):
    pass


class NoSuchSession(Exception):
    pass


class Answers(RedisList):
    def get_history(self, session: str, limit: int = 50) -> list[Any]:
        if limit > 200:
            raise BadRequest(f"a limit of {limit}; at most 200")
        found = super().get_history(session, limit)
        if not found:
            raise NoSuchSession(session)
        return found


def factory(endpoint: Endpoint) -> Answers:
    return Answers(endpoint)
