"""The driver's own retry: after a cut it sends the same RPUSH again, and nobody hears of it."""

import json
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from recollect.verify.engines import Endpoint

DECLARES = {"engine": "redis", "policy": "aof-always", "fault": "lost-ack", "anomaly": "duplicate"}


class Store:
    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 3))

    def append_message(self, session: str, message: Any) -> None:
        self._redis.rpush(f"chat:{session}", json.dumps(message))

    def get_history(self, session: str) -> list[Any]:
        return [json.loads(raw) for raw in self._redis.lrange(f"chat:{session}", 0, -1)]


def make(endpoint: Endpoint) -> Store:
    return Store(endpoint.url)
