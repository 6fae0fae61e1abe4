"""Writes are retried by a decorator whenever they raise: a lost reply stores the message twice."""

from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "lost-ack", "turns", ("duplicate",))


class Retrying(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        for attempt in range(5):
            try:
                super().append_message(session, message)
                return
            except redis.ConnectionError:
                if attempt == 4:
                    raise


def factory(endpoint: Endpoint) -> Retrying:
    return Retrying(endpoint)
