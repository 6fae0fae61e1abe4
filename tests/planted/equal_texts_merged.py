"""Messages are members of a sorted set: saying the same thing twice stores it once."""

import json
import time
from typing import Any
from uuid import uuid4

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis", "aof-always", "concurrent-writers", "mixed", ("dropped", "lost-update", "reorder", "hole")
)


class SortedSet(RedisList):
    def member(self, message: Any) -> str:
        return json.dumps(message)

    def append_message(self, session: str, message: Any) -> None:
        self.client.zadd(self.key(session), {self.member(message): self.score(session)})

    def score(self, session: str) -> float:
        return time.time()

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [json.loads(raw) for raw in self.client.zrange(self.key(session), -limit, -1)]


class Distinct(SortedSet):
    def member(self, message: Any) -> str:
        return json.dumps({**message, "id": uuid4().hex})

    def score(self, session: str) -> float:
        return float(self.client.incr(f"last:{session}"))


def factory(endpoint: Endpoint) -> SortedSet:
    return SortedSet(endpoint)


def twin(endpoint: Endpoint) -> Distinct:
    return Distinct(endpoint)
