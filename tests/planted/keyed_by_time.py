"""The time is the key: two messages of one microsecond are one."""

import json
import time
from typing import Any

import redis

from recollect.verify.engines import Endpoint

DECLARES = {"engine": "redis", "policy": "aof-always", "fault": "clock-frozen", "anomaly": "lost-update"}


class Store:
    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, retry=None)

    def append_message(self, session: str, message: Any) -> None:
        self._redis.hset(f"chat:{session}", f"{time.time():.6f}", json.dumps(message))

    def get_history(self, session: str) -> list[Any]:
        said: dict[bytes, bytes] = self._redis.hgetall(f"chat:{session}")
        return [json.loads(said[at]) for at in sorted(said, key=float)]


def make(endpoint: Endpoint) -> Store:
    return Store(endpoint.url)
