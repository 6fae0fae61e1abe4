"""A plain list for each session in a cluster, with a client for each node: what planted stores are made from.

Without a bug of its own: after every error it learns anew who owns what, and the error is the caller's.
"""

import json
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.crc import key_slot

from recollect.verify.engines.endpoint import Endpoint


class ClusterList:
    def __init__(self, endpoint: Endpoint) -> None:
        self._nodes = endpoint.nodes
        self._clients: dict[int, Any] = {}
        self._owners: list[tuple[int, int, int]] = []
        self.learn()

    def learn(self) -> None:
        for node in self._nodes:
            try:
                told = self._client(int(urlsplit(node).port or 0)).execute_command("CLUSTER SLOTS")
            except redis.RedisError:
                continue
            self._owners = [(first, last, int(port)) for (first, last), (_, port) in _owned(told)]
            return

    def _client(self, port: int) -> Any:
        if port not in self._clients:
            [node] = [node for node in self._nodes if urlsplit(node).port == port]
            self._clients[port] = redis.Redis.from_url(node, retry=None, socket_timeout=5)
        return self._clients[port]

    def client(self, key: str) -> Any:
        slot = key_slot(key.encode())
        return next(self._client(port) for first, last, port in self._owners if first <= slot <= last)

    def append_message(self, session: str, message: Any) -> None:
        try:
            self.client(session).rpush(session, json.dumps(message))
        except redis.RedisError:
            self.learn()
            raise

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        try:
            return [json.loads(raw) for raw in self.client(session).lrange(session, -limit, -1)]
        except redis.RedisError:
            self.learn()
            raise


def _owned(told: Any) -> list[tuple[tuple[int, int], tuple[str, int]]]:
    """redis-py gives this answer as a mapping of ranges, or as the list that the engine sent."""
    if isinstance(told, dict):
        return [(slots, nodes["primary"]) for slots, nodes in told.items()]
    return [((first, last), (primary[0], primary[1])) for first, last, primary, *_ in told]
