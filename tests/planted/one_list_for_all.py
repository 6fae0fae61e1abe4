"""A per-session history forgets to use its session: everyone reads everyone's conversation."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("cross-session-leak",))


class PerSession:
    def __init__(self, endpoint: Endpoint, session_id: str) -> None:
        self.client: Any = connect(endpoint)
        self.key = f"agent:{session_id}:messages"

    def add_items(self, items: list[Any]) -> None:
        self.client.rpush(self.key, *(json.dumps(item) for item in items))

    def get_items(self, limit: int | None = None) -> list[Any]:
        start = 0 if limit is None else -limit
        return [json.loads(raw) for raw in self.client.lrange(self.key, start, -1)]


class Shared(PerSession):
    def __init__(self, endpoint: Endpoint, session_id: str) -> None:
        super().__init__(endpoint, session_id)
        self.key = "agent:messages"


def factory(endpoint: Endpoint, session: str) -> Shared:
    return Shared(endpoint, session)


def twin(endpoint: Endpoint, session: str) -> PerSession:
    return PerSession(endpoint, session)
