"""The time is the key: two messages of one microsecond are one."""

import json
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "clock-frozen", "append", ("lost-update",))


class KeyedByTime(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        self.client.hset(self.key(session), f"{time.time():.6f}", json.dumps(message))

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        said = self.client.hgetall(self.key(session))
        return [json.loads(said[at]) for at in sorted(said, key=float)[-limit:]]


def factory(endpoint: Endpoint) -> KeyedByTime:
    return KeyedByTime(endpoint)
