"""Reads go to the replica, whatever it has seen so far."""

import json
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "replica-lag",
    "turns",
    ("stale-read", "own-write-missing"),
    status="documented-loss",
)


class Split(RedisList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        replica = endpoint.replicas[0] if endpoint.replicas else endpoint.url
        self.reading: Any = redis.Redis.from_url(replica, socket_timeout=5)

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [json.loads(raw) for raw in self.reading.lrange(self.key(session), -limit, -1)]


def factory(endpoint: Endpoint) -> Split:
    return Split(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    """Reads go where the writes go."""
    return RedisList(endpoint)
