"""Writes are retried by a decorator whenever they raise: a lost reply stores the message twice."""

import functools
from collections.abc import Callable
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList
from tests.planted.redis_turns import RedisTurns

PLANTED = Planted("redis", "aof-always", "lost-ack", "turns", ("duplicate",))


def retried(write: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(write)
    def attempt(*arguments: Any, **options: Any) -> None:
        for _ in range(4):
            try:
                return write(*arguments, **options)
            except redis.ConnectionError:
                pass
        return write(*arguments, **options)

    return attempt


class Retrying(RedisList):
    append_message = retried(RedisList.append_message)


class RetryingATurn(RedisTurns):
    append_message = retried(RedisTurns.append_message)


def factory(endpoint: Endpoint) -> Retrying:
    return Retrying(endpoint)


def twin(endpoint: Endpoint) -> RetryingATurn:
    return RetryingATurn(endpoint)
