"""It believes a primary alone: one that the sentinels have replaced acknowledges what is lost when they reach it."""

import json
from typing import Any
from urllib.parse import urlsplit

from redis.sentinel import Sentinel

from recollect.opening import Opening, open_store
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis-sentinel",
    "aof-always",
    "isolate-sentinels",
    "append",
    ("lost-tail",),
    status="documented-loss",
    twin_status="documented-loss",  # what nobody acknowledged may be seen, lost, and written again further on
    twin_without=("lost-tail", "hole", "silent-reset"),
    more={"sessions": 1},
)


class SentinelList:
    """A list for each session; a connection that breaks asks the sentinels again."""

    def __init__(self, endpoint: Endpoint) -> None:
        places = [(parts.hostname, parts.port) for parts in map(urlsplit, endpoint.nodes)]
        sentinel: Any = Sentinel(places, socket_timeout=5)  # type: ignore[no-untyped-call]
        self.client: Any = sentinel.master_for(
            endpoint.service, username=endpoint.user, password=endpoint.password, socket_timeout=5, retry=None
        )

    def append_message(self, session: str, message: Any) -> None:
        self.client.rpush(session, json.dumps(message))

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [json.loads(raw) for raw in self.client.lrange(session, -limit, -1)]


def factory(endpoint: Endpoint) -> SentinelList:
    return SentinelList(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    """Acknowledged is what every copy that may be elected has too."""
    return open_store(endpoint.url, timeout_s=5.0, replicas=2)
