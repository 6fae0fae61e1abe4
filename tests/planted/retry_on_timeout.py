"""Gives up after a moment and sends the same again on a new connection, while the first is still under way."""

from collections.abc import Callable
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList
from tests.planted.redis_turns import RedisTurns

PLANTED = Planted("redis", "aof-always", "half-open", "append", ("duplicate",))


class Impatience:
    def __init__(self, endpoint: Endpoint) -> None:
        self.url = endpoint.url
        self.client = self.connect()

    def connect(self) -> Any:
        return redis.Redis.from_url(self.url, retry=None, socket_timeout=0.5)

    def again_if_slow(self, write: Callable[[], None]) -> None:
        try:
            write()
        except redis.TimeoutError:
            self.client = self.connect()
            write()


class Impatient(Impatience, RedisList):
    def append_message(self, session: str, message: Any) -> None:
        self.again_if_slow(lambda: RedisList.append_message(self, session, message))


class ImpatientWithATurn(Impatience, RedisTurns):
    """Sent again under the same turn id, it is stored once."""

    def append_message(self, session: str, message: Any, turn: str = "") -> None:
        self.again_if_slow(lambda: RedisTurns.append_message(self, session, message, turn))


def factory(endpoint: Endpoint) -> Impatient:
    return Impatient(endpoint)


def twin(endpoint: Endpoint) -> ImpatientWithATurn:
    return ImpatientWithATurn(endpoint)
