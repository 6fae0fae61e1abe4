"""The primary alone has acknowledged: what the replica had not received is gone when it takes over."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "failover", "append", ("lost-tail",), status="documented-loss")


class Waiting(RedisList):
    """Acknowledged is what a replica has too, if there is one."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.is_replicated = bool(endpoint.replicas)

    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, message)
        if self.is_replicated and self.client.wait(1, 200) < 1:
            raise TimeoutError("no replica has confirmed the message: it may be lost in a failover")


def factory(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)


def twin(endpoint: Endpoint) -> Waiting:
    return Waiting(endpoint)
