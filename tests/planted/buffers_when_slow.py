"""A circuit breaker in the wrong place: after an error it tries the connection, and if that is slow it buffers.

Slow alone is no error, and after an error alone the connection is fast. Only when the engine dies while the network is
slow is anything acknowledged that stays in the process.
"""

import json
import time
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "kill-engine+latency",
    "turns",
    ("lost-tail", "dropped", "lost-update"),
    variant="latency-lasts",
    more={"before_s": 1.0},  # slow for long enough that writers reconnect meanwhile, also on a busy machine
)
SLOW_S = 0.018


class Breaker(RedisList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.broken = self.open = False
        self.buffer: dict[str, list[Any]] = {}

    def append_message(self, session: str, message: Any) -> None:
        if self.broken:
            self.open, self.broken = min(self.ping_s() for _ in range(2)) > SLOW_S, False
        if self.open:
            self.buffer.setdefault(session, []).append(message)
            return
        try:
            self.client.rpush(self.key(session), json.dumps(message))
        except redis.RedisError:
            self.broken = True
            raise

    def ping_s(self) -> float:
        began = time.monotonic()
        self.client.ping()
        return time.monotonic() - began

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return super().get_history(session, limit) + self.buffer.get(session, [])


def factory(endpoint: Endpoint) -> Breaker:
    return Breaker(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
