"""The list is trimmed to its last ten on every write, and nobody is told."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "trimmed", ("trimmed",))


class Trimmed(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, message)
        self.client.ltrim(self.key(session), -10, -1)


def factory(endpoint: Endpoint) -> Trimmed:
    return Trimmed(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
