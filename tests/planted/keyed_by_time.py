"""The time is the key: two messages of one microsecond are one."""

import json
import time
from operator import itemgetter
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "clock-frozen", "append", ("lost-update", "dropped"))


class KeyedByTime(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        number = self.client.incr(f"session:{session}:last")
        self.client.hset(self.key(session), self.field(number), json.dumps([number, message]))

    def field(self, number: int) -> str:
        return f"{time.time():.6f}"

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        said = [json.loads(raw) for raw in self.client.hvals(self.key(session))]
        return [message for _, message in sorted(said, key=itemgetter(0))[-limit:]]


class KeyedByNumber(KeyedByTime):
    def field(self, number: int) -> str:
        return str(number)


def factory(endpoint: Endpoint) -> KeyedByTime:
    return KeyedByTime(endpoint)


def twin(endpoint: Endpoint) -> KeyedByNumber:
    return KeyedByNumber(endpoint)
