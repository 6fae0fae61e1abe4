"""A sliding expiry by `EXPIRE … NX` and `GT`, which Redis has since 7.0: it refuses to open on anything older, and an
upgrade that would begin there is not its affair."""

import json
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell

CELLS = (Cell("redis", "aof-always", "upgrade"), Cell("redis", "aof-always", "clock-forward"))
TTL_S = 30 * 86400


class NeedsRedis7:
    retention_s = TTL_S

    def __init__(self, endpoint: Endpoint) -> None:
        self.redis: Any = redis.Redis.from_url(endpoint.url, retry=None)
        version = self.redis.info("server")["redis_version"]
        if int(version.split(".")[0]) < 7:
            raise RuntimeError(f"needs Redis 7 or newer, not {version}")

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        key = f"chat:{session}"
        with self.redis.pipeline(transaction=True) as commands:
            commands.rpush(key, *map(json.dumps, messages))
            commands.expire(key, TTL_S, nx=True)
            commands.expire(key, TTL_S, gt=True)
            commands.execute()

    def history(self, session: str) -> list[dict[str, Any]]:
        return [json.loads(item) for item in self.redis.lrange(f"chat:{session}", 0, -1)]


def factory(endpoint: Endpoint) -> NeedsRedis7:
    return NeedsRedis7(endpoint)
