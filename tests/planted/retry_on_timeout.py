"""Gives up after a moment and sends the same again on a new connection, while the first is still under way."""

from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "half-open", "append", ("duplicate",))


class Impatient(RedisList):
    def __init__(self, endpoint: Endpoint) -> None:
        self.url = endpoint.url
        self.client = self.connect()

    def connect(self) -> Any:
        return redis.Redis.from_url(self.url, retry=None, socket_timeout=0.5)

    def append_message(self, session: str, message: Any) -> None:
        try:
            super().append_message(session, message)
        except redis.TimeoutError:
            self.client = self.connect()
            super().append_message(session, message)


def factory(endpoint: Endpoint) -> Impatient:
    return Impatient(endpoint)
