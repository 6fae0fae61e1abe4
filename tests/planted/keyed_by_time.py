"""The time is the key: two messages of one microsecond are one."""

import json
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "clock-frozen", "append", ("lost-update", "dropped"))


class KeyedByTime(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        self.client.hset(self.key(session), self.field(session), json.dumps(message))

    def field(self, session: str) -> str:
        return f"{time.time():.6f}"

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        said = self.client.hgetall(self.key(session))
        return [json.loads(said[at]) for at in sorted(said, key=float)[-limit:]]


class KeyedByNumber(KeyedByTime):
    def field(self, session: str) -> str:
        return str(self.client.incr(f"session:{session}:last"))


def factory(endpoint: Endpoint) -> KeyedByTime:
    return KeyedByTime(endpoint)


def twin(endpoint: Endpoint) -> KeyedByNumber:
    return KeyedByNumber(endpoint)
