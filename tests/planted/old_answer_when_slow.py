"""A read that takes too long is answered with what the process has read before: late becomes old, and nobody knows."""

from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "pause", "append", ("stale-read",))


class Fallback(RedisList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.client = redis.Redis.from_url(endpoint.url, retry=None, socket_timeout=0.1)
        self.known: dict[tuple[str, int], list[Any]] = {}

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        try:
            self.known[session, limit] = super().get_history(session, limit)
        except redis.TimeoutError:
            self.known.setdefault((session, limit), [])
        return self.known[session, limit]


def factory(endpoint: Endpoint) -> Fallback:
    return Fallback(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
