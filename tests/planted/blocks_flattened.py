"""Content is a column of text: of a list of blocks only the words are kept, and the image is gone."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("corrupted",), variant="one-writer")


class Flat(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        content = message["content"]
        if isinstance(content, list):
            content = "\n".join(block.get("text", "") for block in content)
        super().append_message(session, {**message, "content": content})


def factory(endpoint: Endpoint) -> Flat:
    return Flat(endpoint)


class TextOnly(RedisList):
    """It keeps text as well, and takes nothing else."""

    def append_message(self, session: str, message: Any) -> None:
        if not isinstance(message["content"], str):
            raise TypeError("content: text only")
        super().append_message(session, message)


def twin(endpoint: Endpoint) -> TextOnly:
    return TextOnly(endpoint)
