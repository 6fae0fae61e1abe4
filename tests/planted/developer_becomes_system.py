"""Roles that it does not know are written as the nearest one that it does: developer becomes system."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("corrupted",), variant="one-writer")

NEAREST = {"developer": "system"}


class Rewriting(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        role = message["role"]
        super().append_message(session, {**message, "role": NEAREST.get(role, role)})


def factory(endpoint: Endpoint) -> Rewriting:
    return Rewriting(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
