"""Stores on Redis for asyncio: what others may do while a task asks the engine something, or lets them go first."""

from __future__ import annotations

import asyncio
import time

from recollect.verify.engines import Endpoint
from tests.interleavings.planted.redis_tasks import Messages, OneCommand, OneValue


class WritesForAll(OneCommand):
    """Nothing wrong: who comes while nobody writes, writes for all who come meanwhile."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.waiting: list[tuple[str, Messages, asyncio.Future[None]]] = []
        self.writing = False

    async def append(self, session: str, messages: Messages) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((session, messages, done))
        if not self.writing:
            self.writing = True
            await self.write()
            self.writing = False
        await done

    async def write(self) -> None:
        while self.waiting:
            batch, self.waiting = self.waiting, []
            for session, messages, done in batch:
                await super().append(session, messages)
                done.set_result(None)


class AsksBeforeItStops(WritesForAll):
    """Who comes during the question is written by nobody."""

    async def write(self) -> None:
        await super().write()
        await self.client.ping()


class LockAfterAYield(OneValue):
    """Each session has a lock, made by whoever comes first; two that begin in one turn of the loop make one each."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.locks: dict[str, asyncio.Lock] = {}

    async def lock(self, session: str) -> asyncio.Lock:
        if session not in self.locks:
            await asyncio.sleep(0)
            self.locks[session] = asyncio.Lock()
        return self.locks[session]

    async def append(self, session: str, messages: Messages) -> None:
        async with await self.lock(session):
            await super().append(session, messages)


class OneLockAfterAYield(LockAfterAYield):
    """Nothing wrong: whoever goes on first makes it."""

    async def lock(self, session: str) -> asyncio.Lock:
        await asyncio.sleep(0)
        return self.locks.setdefault(session, asyncio.Lock())


class YieldsNowAndThen(OneCommand):
    """Nothing wrong: as a loop of appends must let others run, it looks at the clock."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.yielded_at = 0.0

    async def append(self, session: str, messages: Messages) -> None:
        if time.monotonic() - self.yielded_at > 0.001:
            self.yielded_at = time.monotonic()
            await asyncio.sleep(0)
        await super().append(session, messages)
        await asyncio.sleep(0.0004)  # a disk, say
