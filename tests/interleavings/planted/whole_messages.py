"""A store on Redis that keeps every field of a message: its lock is all that can be wrong with it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import redis.asyncio as redis

from recollect.message import Damaged, Message, decode, encode
from recollect.verify.engines import Endpoint


class LockOfTheProcess:
    """A lock that whoever holds it may take again; every task of the process is the same holder."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = redis.Redis.from_url(endpoint.url)

    async def take(self, lock: str) -> None:
        me = str(os.getpid())
        while not await self.client.set(lock, me, nx=True, px=60_000):
            if (await self.client.get(lock) or b"").decode() == me:
                return
            await asyncio.sleep(0.01)

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        lock = f"lock:{session}"
        await self.take(lock)
        try:
            known = json.loads(await self.client.get(f"chat:{session}") or "[]")
            known += [encode(message).decode() for message in messages]
            await self.client.set(f"chat:{session}", json.dumps(known))
        finally:
            await self.client.delete(lock)

    async def history(self, session: str) -> list[Message | Damaged]:
        found = json.loads(await self.client.get(f"chat:{session}") or "[]")
        return [decode(record.encode()) for record in found]

    async def close(self) -> None:
        await self.client.aclose()


class LockOfTheCall(LockOfTheProcess):
    """Nothing wrong: the same lock, and whoever wants it waits until it is free."""

    async def take(self, lock: str) -> None:
        while not await self.client.set(lock, "taken", nx=True, px=60_000):
            await asyncio.sleep(0.01)
