"""Entries of a stream get the client's time as their id, and Redis refuses what is not newer: taken for "I have it
already", so after the clock was set back nothing is stored until it catches up."""

import contextlib
import json
import time
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_stream import RedisStream

PLANTED = Planted("redis", "aof-always", "clock-back", "append", ("lost-update", "dropped", "expired-early"))


class IdsByClock(RedisStream):
    def append_message(self, session: str, message: Any) -> None:
        fields = {"message": json.dumps(message)}
        with contextlib.suppress(redis.ResponseError):
            self.client.xadd(self.key(session), fields, id=f"{time.time_ns() // 1000}-*")


def factory(endpoint: Endpoint) -> IdsByClock:
    return IdsByClock(endpoint)


def twin(endpoint: Endpoint) -> RedisStream:
    return RedisStream(endpoint)
