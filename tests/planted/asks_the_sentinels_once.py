"""It asks the sentinels for the primary when it opens, and never again: after a failover that one is a replica."""

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sentinels_not_heard import SentinelList

PLANTED = Planted(
    "redis-sentinel",
    "aof-always",
    "node-kill",
    "append",
    ("does-not-recover",),
    twin_status="documented-loss",  # what the promoted replica had not received
    more={"sessions": 1},
)


class AskedOnce(SentinelList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        host, port = self.client.connection_pool.get_master_address()
        self.client: Any = redis.Redis(
            host,
            port,
            username=endpoint.user,
            password=endpoint.password,
            socket_timeout=5,
            retry=Retry(NoBackoff(), 0),
        )


def factory(endpoint: Endpoint) -> AskedOnce:
    return AskedOnce(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    return builtin.redis(endpoint)
