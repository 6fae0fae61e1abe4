"""A store that takes the engine's refusal for a warning: out of memory, and the message is reported as stored."""

import contextlib
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "refused",
    "turns",
    ("lost-tail", "hole", "dropped"),
    variant="oom",
    asked_for=("--fault", "refused"),
)


class Swallowing(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        with contextlib.suppress(redis.ResponseError):
            super().append_message(session, message)


def factory(endpoint: Endpoint) -> Swallowing:
    return Swallowing(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
