"""A list in Redis whose store waits for six seconds after its server was gone, before it writes again."""

import time
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.redis_list import RedisList

PAUSE_S = 6.0


class SlowToReturn(RedisList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.paused_until = 0.0

    def append_message(self, session: str, message: Any) -> None:
        if time.monotonic() < self.paused_until:
            raise redis.ConnectionError("not yet")
        try:
            super().append_message(session, message)
        except redis.ConnectionError:
            self.paused_until = time.monotonic() + PAUSE_S
            raise


def factory(endpoint: Endpoint) -> SlowToReturn:
    return SlowToReturn(endpoint)
