"""History is ordered by a timestamp in whole seconds: messages of the same second come back in any order."""

import json
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("reorder",))


class BySecond(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        self.client.zadd(self.key(session), {json.dumps(message): self.score(session)})

    def score(self, session: str) -> int:
        return int(time.time())

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [json.loads(raw) for raw in self.client.zrange(self.key(session), -limit, -1)]


def factory(endpoint: Endpoint) -> BySecond:
    return BySecond(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
