"""Answers first and writes in the background: fast, until the network is slow."""

import asyncio
import json
from typing import Any

from redis.asyncio import Redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("redis", "aof-always", "latency", "append", ("reorder", "stale-read", "own-write-missing"))


class Background:
    def __init__(self, endpoint: Endpoint, *, waits: bool) -> None:
        self.client: Any = Redis.from_url(endpoint.url)
        self.waits = waits
        self.writes: set[asyncio.Task[Any]] = set()

    async def append_message(self, session: str, message: Any) -> None:
        write = asyncio.ensure_future(self.client.rpush(session, json.dumps(message)))
        self.writes.add(write)
        write.add_done_callback(self.writes.discard)
        if self.waits:
            await write

    async def get_history(self, session: str) -> list[Any]:
        return [json.loads(raw) for raw in await self.client.lrange(session, 0, -1)]


def factory(endpoint: Endpoint) -> Background:
    return Background(endpoint, waits=False)


def twin(endpoint: Endpoint) -> Background:
    return Background(endpoint, waits=True)
