"""No turn id: when the acknowledgement is lost, the caller's retry stores the message again."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "lost-ack", "append", ("duplicate",))


def factory(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
