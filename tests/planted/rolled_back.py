"""The older Redis does not find the newer one's files: the memory opens empty, without a word."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_identity import RedisIdentity
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "downgrade",
    "turns",
    ("silent-reset",),
    status="exposed",
    twin_status="documented-loss",
)


def factory(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)


def twin(endpoint: Endpoint) -> RedisIdentity:
    return RedisIdentity(endpoint)
