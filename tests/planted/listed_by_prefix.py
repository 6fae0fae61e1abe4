"""A keyed `create_message`; `list_messages` takes every key that begins like the session's."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "none", "contents", ("cross-session-leak",), variant="one-writer")


class Exact:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def create_message(self, session: str, message: dict[str, Any]) -> None:
        self.client.rpush(f"said:{session}", json.dumps(message))

    def keys(self, session: str) -> list[str]:
        return [f"said:{session}"]

    def list_messages(self, session: str) -> list[Any]:
        raw = [one for key in self.keys(session) for one in self.client.lrange(key, 0, -1)]
        return [json.loads(one) for one in raw]


class ByPrefix(Exact):
    def keys(self, session: str) -> list[str]:
        return sorted(self.client.scan_iter(f"said:{session}*", count=1_000))


def factory(endpoint: Endpoint) -> ByPrefix:
    return ByPrefix(endpoint)


def twin(endpoint: Endpoint) -> Exact:
    return Exact(endpoint)
