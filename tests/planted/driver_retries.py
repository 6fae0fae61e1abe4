"""The driver's own retry: after a lost reply it sends the same RPUSH again, and nobody hears of it."""

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList
from tests.planted.redis_turns import RedisTurns

PLANTED = Planted("redis", "aof-always", "lost-ack", "append", ("duplicate",))


def retrying(endpoint: Endpoint) -> Any:
    return redis.Redis.from_url(endpoint.url, retry=Retry(NoBackoff(), 3))


def factory(endpoint: Endpoint) -> RedisList:
    store = RedisList(endpoint)
    store.client = retrying(endpoint)
    return store


def twin(endpoint: Endpoint) -> RedisTurns:
    """The driver may send it as often as it likes: the turn id makes it one."""
    store = RedisTurns(endpoint)
    store.client = retrying(endpoint)
    return store
