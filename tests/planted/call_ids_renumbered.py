"""Tool calls get ids of its own when they are read: no result belongs to its call any more."""

from typing import Any
from uuid import uuid4

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("corrupted",), variant="one-writer")


class Renumbering(RedisList):
    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        said = super().get_history(session, limit)
        for message in said:
            for call in message.get("tool_calls", ()):
                call["id"] = f"call_{uuid4().hex}"
        return said


def factory(endpoint: Endpoint) -> Renumbering:
    return Renumbering(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
