"""Stores on Redis for asyncio in which something is wrong only after they have been used for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import redis.asyncio as redis

from recollect.verify.engines import Endpoint
from tests.interleavings.planted.redis_tasks import Messages, OneCommand


class FailsLater(OneCommand):
    """Nothing that one schedule shows: the fifth call after a caller first gave up fails."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.left: int | None = None

    async def append(self, session: str, messages: Messages) -> None:
        self.count_down()
        try:
            await super().append(session, messages)
        except asyncio.CancelledError:
            self.left = 5 if self.left is None else self.left
            raise

    async def history(self, session: str) -> list[dict[str, str]]:
        self.count_down()
        return await super().history(session)

    def count_down(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("damaged long ago")


class CountsItsAppends(OneCommand):
    """Nothing wrong: it only knows how many there were."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.appends = 0

    async def append(self, session: str, messages: Messages) -> None:
        self.appends += 1
        await super().append(session, messages)


class HurriesLater(CountsItsAppends):
    """After its tenth append, it no longer waits for the engine: whoever reads may come before what he wrote."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.behind: set[asyncio.Task[None]] = set()

    async def append(self, session: str, messages: Messages) -> None:
        work = asyncio.create_task(super().append(session, messages))
        if self.appends < 10:
            await work
        else:
            self.behind.add(work)


class FailsOnce(OneCommand):
    """The twentieth append of the process fails, whichever store it is made on: that never comes again."""

    appends = 0

    async def append(self, session: str, messages: Messages) -> None:
        FailsOnce.appends += 1
        if FailsOnce.appends == 20:
            raise RuntimeError("once")
        await super().append(session, messages)


class FinishedAnyway(OneCommand):
    """Nothing wrong: a write is finished even if its caller gives up. Its driver never tries again."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = redis.Redis.from_url(endpoint.url, retry=None)
        self.writes: set[asyncio.Future[None]] = set()

    async def append(self, session: str, messages: Messages) -> None:
        write = asyncio.ensure_future(super().append(session, messages))
        self.writes.add(write)
        write.add_done_callback(self.writes.discard)
        await asyncio.shield(write)
