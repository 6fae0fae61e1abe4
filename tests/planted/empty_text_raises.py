"""An empty text is taken for damage: reading a session in which nothing was said once raises for ever."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("unreadable",), variant="one-writer")


class Suspicious(RedisList):
    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        said = super().get_history(session, limit)
        if not all(message["content"] for message in said):
            raise ValueError(f"a message of {session} has no content")
        return said


def factory(endpoint: Endpoint) -> Suspicious:
    return Suspicious(endpoint)


class Strict(RedisList):
    """It takes no empty text in the first place."""

    def append_message(self, session: str, message: Any) -> None:
        if not message["content"]:
            raise ValueError("content: not empty")
        super().append_message(session, message)


def twin(endpoint: Endpoint) -> Strict:
    return Strict(endpoint)
