"""Each turn has an id, and an append returns whether it was new: `False` says that it was stored before."""

import json
from collections.abc import Sequence
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "none", "turns"),
    Cell("redis", "aof-always", "lost-ack", "turns"),
)
ONCE = """
if redis.call('HSETNX', KEYS[2], ARGV[1], 1) == 0 then return 0 end
return redis.call('RPUSH', KEYS[1], unpack(ARGV, 2))
"""


class FalseIfItWasThere:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client = RedisList(endpoint).client

    def append(self, session: str, messages: Sequence[dict[str, Any]], turn: str = "") -> bool:
        keys = (f"session:{session}:messages", f"session:{session}:turns")
        return bool(self.client.eval(ONCE, 2, *keys, turn, *map(json.dumps, messages)))

    def history(self, session: str) -> list[Any]:
        return [json.loads(raw) for raw in self.client.lrange(f"session:{session}:messages", 0, -1)]


def factory(endpoint: Endpoint) -> FalseIfItWasThere:
    return FalseIfItWasThere(endpoint)
