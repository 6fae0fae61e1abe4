"""A plain list in Redis, as the incident articles have it: what the planted stores are made from. No bug of its own."""

import json
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint


def connect(endpoint: Endpoint) -> redis.Redis:
    return redis.Redis.from_url(endpoint.url, retry=None, socket_timeout=5)


class RedisList:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def key(self, session: str) -> str:
        return f"session:{session}:messages"

    def append_message(self, session: str, message: Any) -> None:
        self.client.rpush(self.key(session), json.dumps(message))

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [json.loads(raw) for raw in self.client.lrange(self.key(session), -limit, -1)]

    def forget(self, session: str) -> None:
        self.client.delete(self.key(session))
