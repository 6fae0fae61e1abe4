"""Gives up after a moment and sends the same again on a new connection, while the first is still under way."""

import json
from typing import Any

import redis

from recollect.verify.engines import Endpoint

DECLARES = {"engine": "redis", "policy": "aof-always", "fault": "half-open", "anomaly": "duplicate"}


class Store:
    def __init__(self, url: str) -> None:
        self._url = url
        self._redis = self._connect()

    def _connect(self) -> "redis.Redis":
        return redis.Redis.from_url(self._url, retry=None, socket_timeout=0.3)

    def append_message(self, session: str, message: Any) -> None:
        raw = json.dumps(message)
        try:
            self._redis.rpush(f"chat:{session}", raw)
        except redis.TimeoutError:
            self._redis = self._connect()
            self._redis.rpush(f"chat:{session}", raw)

    def get_history(self, session: str) -> list[Any]:
        return [json.loads(raw) for raw in self._redis.lrange(f"chat:{session}", 0, -1)]


def make(endpoint: Endpoint) -> Store:
    return Store(endpoint.url)
