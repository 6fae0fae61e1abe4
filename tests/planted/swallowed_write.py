"""An error while writing is logged, and the caller told that all is well."""

import json
import logging
from typing import Any

import redis

from recollect.verify.engines import Endpoint

DECLARES = {"engine": "redis", "policy": "aof-always", "fault": "cut", "anomaly": "lost-tail"}


class Store:
    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, retry=None)

    def append_message(self, session: str, message: Any) -> None:
        try:
            self._redis.rpush(f"chat:{session}", json.dumps(message))
        except redis.RedisError as error:
            logging.warning("memory is not available: %s", error)

    def get_history(self, session: str) -> list[Any]:
        return [json.loads(raw) for raw in self._redis.lrange(f"chat:{session}", 0, -1)]


def make(endpoint: Endpoint) -> Store:
    return Store(endpoint.url)
