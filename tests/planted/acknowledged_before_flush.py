"""Messages are buffered and flushed in the background: the caller hears "stored" before anything is."""

import asyncio
import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "kill-app",
    "turns",
    ("lost-tail", "hole", "dropped", "lost-update", "stale-read", "own-write-missing"),
)


class Buffered(RedisList):
    def __init__(self, endpoint: Endpoint, *, waits: bool) -> None:
        super().__init__(endpoint)
        self.waits = waits
        self.buffer: list[tuple[str, str]] = []
        self.flushing: asyncio.Task[None] | None = None

    async def append_message(self, session: str, message: Any) -> None:  # type: ignore[override]
        self.buffer.append((self.key(session), json.dumps(message)))
        if self.flushing is None or self.flushing.done():
            self.flushing = asyncio.create_task(self.flush())
        if self.waits:
            await self.flushing

    async def flush(self) -> None:
        await asyncio.sleep(0.03)
        waiting, self.buffer = self.buffer, []
        for key, raw in waiting:
            self.client.rpush(key, raw)


def factory(endpoint: Endpoint) -> Buffered:
    return Buffered(endpoint, waits=False)


def twin(endpoint: Endpoint) -> Buffered:
    return Buffered(endpoint, waits=True)
