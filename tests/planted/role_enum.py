"""Roles are an enumeration: one message with a role that a newer release added makes the whole history raise."""

import enum
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "newer-writer",
    "turns",
    ("unreadable",),
    more={"previous": "tests.planted.role_enum:next_release"},
)


NEW_NAMES = {"user": "human", "assistant": "ai"}


class Role(enum.Enum):
    USER = "user"
    ASSISTANT = "assistant"


class Enumerated(RedisList):
    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [
            {**message, "role": Role(message["role"]).value}
            for message in super().get_history(session, limit)
        ]


class NextRelease(RedisList):
    """Calls the roles as its framework does."""

    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, {**message, "role": NEW_NAMES[message["role"]]})


def factory(endpoint: Endpoint) -> Enumerated:
    return Enumerated(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    """Hands on a role that it does not know as it is."""
    return RedisList(endpoint)


def next_release(endpoint: Endpoint) -> NextRelease:
    return NextRelease(endpoint)
