"""The content column holds sixty characters; longer messages are cut without an error."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "mixed", ("corrupted",))


class Cut(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, {**message, "content": message["content"][:60]})


def factory(endpoint: Endpoint) -> Cut:
    return Cut(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
