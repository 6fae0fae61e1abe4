"""Roles are an enumeration, applied on reading: one message of a newer kind makes the whole session unreadable."""

import enum
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("unreadable",), variant="one-writer")


class Role(enum.Enum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"
    DEVELOPER = "developer"


class Enumerated(RedisList):
    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        said = super().get_history(session, limit)
        return [{**message, "role": Role(message["role"]).value} for message in said]


def factory(endpoint: Endpoint) -> Enumerated:
    return Enumerated(endpoint)


class Refusing(RedisList):
    """It knows the same roles, and says so before anything is written."""

    def append_message(self, session: str, message: Any) -> None:
        Role(message["role"])
        super().append_message(session, message)


def twin(endpoint: Endpoint) -> Refusing:
    return Refusing(endpoint)
