"""Messages are hash fields numbered by a counter that each process keeps for itself: workers overwrite each other."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("lost-update",))


class Numbered(RedisList):
    """Numbered by Redis, for all processes."""

    def append_message(self, session: str, message: Any) -> None:
        self.client.hset(self.key(session), str(self.next(session)), json.dumps(message))

    def next(self, session: str) -> int:
        return int(self.client.incr(f"session:{session}:last"))

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        fields = sorted(self.client.hgetall(self.key(session)).items(), key=lambda item: int(item[0]))
        return [json.loads(raw) for _, raw in fields[-limit:]]


class NumberedHere(Numbered):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.last: dict[str, int] = {}

    def next(self, session: str) -> int:
        if session not in self.last:
            self.last[session] = self.client.hlen(self.key(session))
        self.last[session] += 1
        return self.last[session]


def factory(endpoint: Endpoint) -> NumberedHere:
    return NumberedHere(endpoint)


def twin(endpoint: Endpoint) -> Numbered:
    return Numbered(endpoint)
