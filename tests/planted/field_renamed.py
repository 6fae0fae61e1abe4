"""A field was renamed: this release writes both names and reads the new one, which the last release never wrote."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "older-writer",
    "turns",
    ("unreadable",),
    more={"previous": "tests.planted.field_renamed:last_release"},
)


class LastRelease(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, {"role": message["role"], "text": message["content"]})

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        messages = super().get_history(session, limit)
        return [{"role": message["role"], "content": message["text"]} for message in messages]


class Renamed(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, {**message, "text": message["content"]})

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        messages = super().get_history(session, limit)
        return [{"role": message["role"], "content": self.content(message)} for message in messages]

    def content(self, message: dict[str, Any]) -> Any:
        return message["content"]


class ReadsBoth(Renamed):
    def content(self, message: dict[str, Any]) -> Any:
        return message.get("content", message.get("text"))


def factory(endpoint: Endpoint) -> Renamed:
    return Renamed(endpoint)


def twin(endpoint: Endpoint) -> ReadsBoth:
    return ReadsBoth(endpoint)


def last_release(endpoint: Endpoint) -> LastRelease:
    return LastRelease(endpoint)
