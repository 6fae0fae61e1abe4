"""An expiry of five minutes, set for a load test and never taken out."""

import json
from typing import Any

import redis

from recollect.verify.engines import Endpoint

DECLARES = {"engine": "redis", "policy": "aof-always", "fault": "clock-forward", "anomaly": "expired-early"}
TTL_S = 300


class Store:
    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, retry=None)

    def append_message(self, session: str, message: Any) -> None:
        with self._redis.pipeline() as pipeline:
            pipeline.rpush(f"chat:{session}", json.dumps(message)).expire(f"chat:{session}", TTL_S).execute()

    def get_history(self, session: str) -> list[Any]:
        return [json.loads(raw) for raw in self._redis.lrange(f"chat:{session}", 0, -1)]


def make(endpoint: Endpoint) -> Store:
    return Store(endpoint.url)
