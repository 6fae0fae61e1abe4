"""A sorted set with the second as its score: what is said within one second is sorted by its text."""

import json
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "append", ("reorder",), variant="one-writer")


class Scored(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        self.client.zadd(self.key(session), {json.dumps(message): self.score(session)})

    def score(self, session: str) -> int:
        return int(time.time())

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [json.loads(raw) for raw in self.client.zrange(self.key(session), -limit, -1)]


def factory(endpoint: Endpoint) -> Scored:
    return Scored(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
