"""Messages are pickled objects of a class: the next release has moved the class, and this one cannot load it."""

import pickle
import sys
import types
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
    more={"previous": "tests.planted.pickled:next_release"},
    twin_more={"previous": "tests.planted.pickled:next_twin"},
)


class Pickled(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        self.client.rpush(self.key(session), pickle.dumps(self.packed(message)))

    def packed(self, message: Any) -> Any:
        return dict(message)

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [pickle.loads(raw) for raw in self.client.lrange(self.key(session), -limit, -1)]


class NextRelease(Pickled):
    def packed(self, message: Any) -> Any:
        return sys.modules["memory_v2"].ChatMessage(message)


class NextTwin(Pickled):
    """What is pickled stays a plain mapping; a new field is one more key."""

    def packed(self, message: Any) -> Any:
        return {**message, "language": "en"}


def factory(endpoint: Endpoint) -> Pickled:
    return Pickled(endpoint)


twin = factory


def next_release(endpoint: Endpoint) -> NextRelease:
    module = types.ModuleType("memory_v2")

    class ChatMessage(dict):  # type: ignore[type-arg]
        pass

    ChatMessage.__module__, ChatMessage.__qualname__ = "memory_v2", "ChatMessage"
    module.ChatMessage = ChatMessage  # type: ignore[attr-defined]
    sys.modules["memory_v2"] = module
    return NextRelease(endpoint)


def next_twin(endpoint: Endpoint) -> NextTwin:
    return NextTwin(endpoint)
