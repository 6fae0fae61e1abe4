"""One atomic write, an honest error, and no turn id: a caller that tries again stores the message twice."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList
from tests.planted.redis_turns import RedisTurns

PLANTED = Planted("redis", "aof-always", "lost-ack", "turns", ("duplicate",), status="exposed")


def factory(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)


def twin(endpoint: Endpoint) -> RedisTurns:
    return RedisTurns(endpoint)
