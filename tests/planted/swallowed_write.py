"""An error while writing is logged, and the caller told that all is well."""

import logging
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "cut", "append", ("lost-tail", "hole"))


class Swallowing(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        try:
            super().append_message(session, message)
        except redis.RedisError as error:
            logging.getLogger(__name__).warning("memory is not available: %s", error)


def factory(endpoint: Endpoint) -> Swallowing:
    return Swallowing(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
