"""``limit`` is taken from the wrong end: the newest messages never reach the model."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "concurrent-writers",
    "turns",
    ("stale-read", "own-write-missing", "hidden", "dropped", "lost-update"),
)


class OldEnd(RedisList):
    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [json.loads(raw) for raw in self.client.lrange(self.key(session), 0, limit - 1)]


def factory(endpoint: Endpoint) -> OldEnd:
    return OldEnd(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
