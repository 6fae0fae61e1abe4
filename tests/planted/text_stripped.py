"""Texts are stripped before they are stored: code loses its last line, and a signature its text."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("corrupted",), variant="one-writer")


class Tidy(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        content = message["content"]
        content = content.strip() if isinstance(content, str) else content
        super().append_message(session, {**message, "content": content})


def factory(endpoint: Endpoint) -> Tidy:
    return Tidy(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
