"""One atomic RPUSH, without any retries of its own: when it does not know what became of it, it says so."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "none", "contents"),
    Cell("redis", "aof-always", "lost-ack"),
    Cell("redis", "aof-always", "wipe-volume"),
    Cell("redis", "aof-always", "cut"),
    Cell("redis", "aof-always", "half-open"),
    Cell("redis", "aof-everysec", "power-loss"),
    Cell("redis", "rdb", "kill-engine", "forget"),
    Cell("redis", "aof-always", "evict"),
    Cell("redis", "aof-always", "clock-back"),
)


def factory(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
