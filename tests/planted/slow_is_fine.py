"""A timeout is taken for success: "it has arrived, the disk is only slow"."""

import contextlib
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "slow-fsync", "append", ("lost-tail",))


class Hasty(RedisList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.client = redis.Redis.from_url(endpoint.url, retry=None, socket_timeout=0.4)


class Hopeful(Hasty):
    def append_message(self, session: str, message: Any) -> None:
        with contextlib.suppress(redis.TimeoutError):
            super().append_message(session, message)


def factory(endpoint: Endpoint) -> Hopeful:
    return Hopeful(endpoint)


def twin(endpoint: Endpoint) -> Hasty:
    """As impatient, and it says so."""
    return Hasty(endpoint)
