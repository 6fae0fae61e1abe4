"""The primary alone has acknowledged: what the replica had not received is gone when it takes over."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "failover", "append", ("lost-tail",), status="documented-loss")


class Waiting(RedisList):
    """Acknowledged is what a replica has too. The new primary has none yet, and is believed alone."""

    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, message)
        if self.client.wait(1, 200) < 1:
            raise TimeoutError("no replica has confirmed the message: it may be lost in a failover")


def factory(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)


def twin(endpoint: Endpoint) -> Waiting:
    return Waiting(endpoint)
