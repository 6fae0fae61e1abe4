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
    """Knows one more role, and uses it now and then."""

    appended = 0

    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, message)
        self.appended += 1
        if self.appended % 2 == 0:
            super().append_message(session, {"role": "tool", "content": "looked it up"})


def factory(endpoint: Endpoint) -> Enumerated:
    return Enumerated(endpoint)


def next_release(endpoint: Endpoint) -> NextRelease:
    return NextRelease(endpoint)
