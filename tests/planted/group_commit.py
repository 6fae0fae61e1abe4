"""Appends of one process share a flush. Whoever leads it hears of an error; the others only hear that it is over."""

import asyncio
import json
from typing import Any

import redis.asyncio as redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("redis", "aof-always", "cut", "turns", ("lost-tail", "hole"), variant="several-callers")


class Group:
    """The writes of one flush, and how it ended."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str]] = []
        self.is_over = asyncio.Event()
        self.error: Exception | None = None


class GroupCommit:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = redis.Redis.from_url(endpoint.url, retry=None, socket_timeout=5)
        self.lock = asyncio.Lock()
        self.next = Group()
        self.flushes: set[asyncio.Task[None]] = set()

    async def append_message(self, session: str, message: Any) -> None:
        mine = self.next
        mine.writes.append((f"chat:{session}", json.dumps(message)))
        if len(mine.writes) > 1:
            await self.await_flush(mine)
            return
        flush = asyncio.create_task(self.flush(mine))
        self.flushes.add(flush)
        flush.add_done_callback(self.flushes.discard)
        await asyncio.shield(flush)  # the others need it, also if this caller gives up

    async def flush(self, group: Group) -> None:
        async with self.lock:
            self.next = Group()
            try:
                async with self.client.pipeline(transaction=True) as pipe:
                    for key, record in group.writes:
                        pipe.rpush(key, record)
                    await pipe.execute()
            except Exception as error:
                group.error = error
                raise
            finally:
                group.is_over.set()

    async def await_flush(self, group: Group) -> None:
        await group.is_over.wait()
        if group.error is not None:
            raise ConnectionError("the flush failed") from group.error

    async def get_history(self, session: str) -> list[Any]:
        return [json.loads(record) for record in await self.client.lrange(f"chat:{session}", 0, -1)]

    async def close(self) -> None:
        await self.client.aclose()


class OnlyTheLeaderIsTold(GroupCommit):
    async def await_flush(self, group: Group) -> None:
        await group.is_over.wait()


def factory(endpoint: Endpoint) -> OnlyTheLeaderIsTold:
    return OnlyTheLeaderIsTold(endpoint)


def twin(endpoint: Endpoint) -> GroupCommit:
    return GroupCommit(endpoint)
