"""When no connection is to be had, the conversation is empty: the assistant greets an old friend as a stranger."""

from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "pool-exhausted",
    "append",
    ("hidden", "stale-read", "own-write-missing", "non-monotonic-read"),
)


class Empty(RedisList):
    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        try:
            return super().get_history(session, limit)
        except redis.ConnectionError:
            return []


def factory(endpoint: Endpoint) -> Empty:
    return Empty(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
