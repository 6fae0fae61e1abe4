"""A watch beside a live engine, round by round; and a door in front of engines, behind which they change."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from recollect.secret import shown
from recollect.watch import Alarm, Canary, CanaryMemory, CanaryWatch

ROUND_S = 0.1


class Beside:
    """Rounds of a watch, quicker than in production."""

    def __init__(self, url: str, file: Path, **options: Any) -> None:
        self.events: list[dict[str, object]] = []
        self.memory = CanaryMemory(file, options.pop("address", None) or shown(url))
        given = {"replica": None, "timeout_s": 5.0, "stale_s": 1.0} | options.pop("canary", {})
        self.canary = Canary(url, self.memory, **given)
        settings = {"slow_s": 60.0, "patience_s": 60.0} | options
        self.watch = CanaryWatch(self.canary, self.events.append, url, **settings)

    async def rounds(self, count: int) -> list[str]:
        """Names of what was told meanwhile."""
        return [alarm.name for _ in range(count) for alarm in await self.watch.once()]

    async def told(self, within_s: float = 60.0) -> list[Alarm]:
        """The first alarms. The deadline is for a busy machine: how soon it is told is not measured here."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            self.watch._settings_at = float("-inf")
            if alarms := await self.watch.once():
                return alarms
            await asyncio.sleep(ROUND_S)
        raise AssertionError("nothing was told")

    async def heard(self, count: int = 1) -> None:
        """Until it was able to speak again some times, without any alarm."""
        deadline = time.monotonic() + 60
        wanted = self.watch.metrics.appends + count
        while self.watch.metrics.appends < wanted:
            assert await self.rounds(1) == []
            assert time.monotonic() < deadline, self.watch.reason
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        await self.canary.close()
        self.memory.close()


@asynccontextmanager
async def beside(url: str, file: Path, **options: Any) -> AsyncIterator[Beside]:
    made = Beside(url, file, **options)
    try:
        await made.heard(5)
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def door(target: Callable[[], tuple[str | None, int | None]]) -> AsyncIterator[int]:
    """A port that leads to whatever engine is the right one when a connection is made."""

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*target())
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))

    server = await asyncio.start_server(through, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
