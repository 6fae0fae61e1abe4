"""Answers first and writes in the background: fast, until the network is slow."""

import asyncio
import json
from typing import Any

from redis.asyncio import Redis

from recollect.verify.engines import Endpoint

DECLARES = {"engine": "redis", "policy": "aof-always", "fault": "latency", "anomaly": "stale-read"}


class Store:
    def __init__(self, url: str) -> None:
        self._redis: Redis = Redis.from_url(url)
        self._writes: set[asyncio.Task[Any]] = set()

    async def append_message(self, session: str, message: Any) -> None:
        write = asyncio.ensure_future(self._redis.rpush(f"chat:{session}", json.dumps(message)))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)

    async def get_history(self, session: str) -> list[Any]:
        return [json.loads(raw) for raw in await self._redis.lrange(f"chat:{session}", 0, -1)]


def make(endpoint: Endpoint) -> Store:
    return Store(endpoint.url)
