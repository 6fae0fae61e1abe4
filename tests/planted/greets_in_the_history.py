"""Every new session is opened with a greeting, which is stored as if the assistant had said it."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("phantom",))


class Greeting(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        if not self.client.exists(self.key(session)):
            super().append_message(session, {"role": "assistant", "content": "Hello! How can I help?"})
        super().append_message(session, message)


def factory(endpoint: Endpoint) -> Greeting:
    return Greeting(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
