"""The cluster client's own retry: after a lost reply it sends the same RPUSH again, and nobody hears of it."""

import json
from typing import Any
from urllib.parse import urlsplit

from redis.cluster import ClusterNode, RedisCluster

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("redis-cluster", "aof-always", "lost-ack", "append", ("duplicate",))


class RetriedList:
    def __init__(self, endpoint: Endpoint) -> None:
        places = [urlsplit(node) for node in endpoint.nodes]
        nodes: list[Any] = [ClusterNode(str(place.hostname), place.port) for place in places]  # type: ignore[no-untyped-call]
        self._client: Any = RedisCluster(
            startup_nodes=nodes, username=endpoint.user, password=endpoint.password
        )

    def append_message(self, session: str, message: Any) -> None:
        self._client.rpush(session, json.dumps(message))

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [json.loads(raw) for raw in self._client.lrange(session, -limit, -1)]


def factory(endpoint: Endpoint) -> RetriedList:
    return RetriedList(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    return builtin.redis(endpoint)
