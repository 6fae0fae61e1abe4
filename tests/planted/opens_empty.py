"""A volume that was recycled opens as an empty memory, without a word."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_identity import RedisIdentity
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "wipe-volume",
    "turns",
    ("silent-reset", "lost-tail"),
    status="exposed",
    twin_status="documented-loss",
)


def factory(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)


def twin(endpoint: Endpoint) -> RedisIdentity:
    return RedisIdentity(endpoint)
