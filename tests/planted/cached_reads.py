"""Reads are cached for a moment, and an append does not clear the cache: a process misses what it has just said."""

import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("own-write-missing",))


class Cached(RedisList):
    def __init__(self, endpoint: Endpoint, *, life_s: float) -> None:
        super().__init__(endpoint)
        self.life_s = life_s
        self.cache: dict[tuple[str, int], tuple[float, list[Any]]] = {}

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        read_s, messages = self.cache.get((session, limit), (float("-inf"), []))
        if time.monotonic() - read_s > self.life_s:
            messages = super().get_history(session, limit)
            self.cache[session, limit] = time.monotonic(), messages
        return messages


def factory(endpoint: Endpoint) -> Cached:
    return Cached(endpoint, life_s=0.1)


def twin(endpoint: Endpoint) -> Cached:
    return Cached(endpoint, life_s=-1.0)
