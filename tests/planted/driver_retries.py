"""The driver's own retry: after a lost reply it sends the same RPUSH again, and nobody hears of it."""

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "lost-ack", "append", ("duplicate",))


class DriverRetries(RedisList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.client = redis.Redis.from_url(endpoint.url, retry=Retry(NoBackoff(), 3))


def factory(endpoint: Endpoint) -> DriverRetries:
    return DriverRetries(endpoint)
