"""Whether the AOF has been fsynced, seen from outside: for engines whose WAITAOF answers too early.

Under everysec the engine's main thread hands the file to a background thread, at most once a second, and `INFO` says
whether that thread is busy. This is how Redis and Valkey work since 7.0 (aof.c flushAppendOnlyFile):

1. Each turn of the event loop first writes the AOF buffer to the file, unless an fsync is running, then begins an
   fsync if the last one began a second ago or more. Only then does it send replies.
2. So if `INFO` says that no fsync is running, everything answered before is in the file before the next fsync begins;
   and once a second has passed on the engine's clock, that fsync has begun.
3. When `INFO`, asked again after that, says that none is running, it has ended.

What can go wrong in between: a rewrite begins, and the next fsync is of another file (the same thread fsyncs the old
file, so the fsync of a write to the new one, the `nudge`, comes after that); an fsync fails and the next one succeeds
(those are a second apart, and we never look away for that long); the engine's clock is set back, and no fsync is due
until it has caught up. In each case the wait starts over.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from recollect.errors import Unreadable
from recollect.stores.redis.wire import Reply, pack

FSYNC_INTERVAL_S = 1.0
"""The period of appendfsync everysec."""
CLOCK_TOLERANCE_S = 0.1
"""We do not notice a clock that is set back by less than this, so we wait this much longer."""
_DUE_S = FSYNC_INTERVAL_S + CLOCK_TOLERANCE_S
GAP_MAX_S = 0.9
LOOK_S = 0.01
LOOK_RARELY_S = 0.2


@dataclass(frozen=True)
class Look:
    """What the engine says at one moment."""

    time_s: float
    """On the engine's clock."""
    run: str
    is_idle: bool
    """No fsync is running."""
    fails: bool
    rewrites: int


class _Wait:
    """Somebody is waiting for the fsync of what this run of the engine has answered so far."""

    def __init__(self, run: str, future: "asyncio.Future[str | None]") -> None:
        self.future = future
        self._run = run
        self._begin: Look | None = None
        self._last: Look | None = None
        self._is_due = False
        self.is_nudged = False
        """A write was sent before the last look, into the engine's current file."""

    def pause_s(self) -> float:
        """How long until there can be anything new to see."""
        if self._begin is None or self._last is None or self._is_due:
            return LOOK_S
        return min(max(_DUE_S - (self._last.time_s - self._begin.time_s), LOOK_S), LOOK_RARELY_S)

    def see(self, look: Look) -> None:
        last, self._last = self._last, look
        if look.fails:
            self.end("the engine cannot write its AOF")
        elif look.run != self._run:
            self.end("the engine was restarted before it had fsynced")
        elif last is not None and not _goes_on(last, look):
            self._begin, self._is_due, self.is_nudged = None, False, False
        elif self._begin is None:
            self._begin, self.is_nudged = look if look.is_idle else None, True
        elif self._is_due and look.is_idle:
            self.end(None)
        elif look.time_s - self._begin.time_s >= _DUE_S:
            self._is_due = True

    def end(self, shortfall: str | None) -> None:
        if not self.future.done():
            self.future.set_result(shortfall)


def _goes_on(last: Look, look: Look) -> bool:
    return look.rewrites == last.rewrites and 0 <= look.time_s - last.time_s < GAP_MAX_S


class FsyncWatch:
    """Looks at the engine for as long as somebody waits. One per store: each look serves all who wait."""

    def __init__(
        self, ask: Callable[[bytes, int], Awaitable[list[Reply]]], nudge: Callable[[], bytes]
    ) -> None:
        """`nudge` makes a packed write: without one after a rewrite begins, there is nothing to fsync."""
        self._ask = ask
        self._nudge = nudge
        self._waits: list[_Wait] = []
        self._task: asyncio.Task[None] | None = None
        self._ahead_s: float | None = None
        """The largest difference seen between the engine's clock and ours."""
        self._caught_up_s = 0.0
        """Where the engine's clock stood before it was set back, if it was."""

    async def passed(self, run: str) -> str | None:
        """Waits until everything this run of the engine has answered is fsynced; returns what prevented it, or None."""
        loop = asyncio.get_running_loop()
        wait = _Wait(run, loop.create_future())
        self._waits.append(wait)
        if self._task is None:
            self._task = loop.create_task(self._look())
        return await wait.future

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for wait in self._waits:
            wait.end("the store was closed before its fsync was seen")

    async def _look(self) -> None:
        try:
            while self._waits:
                await self._look_once()
        except Exception as error:  # the writes that wait may be there or not
            for wait in self._waits:
                wait.end(f"its fsync could not be seen ({error})")
            self._waits.clear()
        finally:
            self._task = None

    async def _look_once(self) -> None:
        waits = list(self._waits)  # the answer says nothing for those who join while we ask
        nudge = b"" if all(wait.is_nudged for wait in waits) else self._nudge()
        *nudged, reply = await self._ask(nudge + _QUESTION, 2 if nudge else 1)
        if nudged not in ([], [b"OK"]):
            raise Unreadable(f"a write was answered by {nudged[0]!r}")
        look = _read(reply)
        if self._is_trusted(look):
            for wait in waits:
                wait.see(look)
        self._waits = [wait for wait in self._waits if not wait.future.done()]
        if self._waits:
            await asyncio.sleep(min(wait.pause_s() for wait in self._waits))

    def _is_trusted(self, look: Look) -> bool:
        """False if the engine's clock was set back and has not caught up yet, as far as we can see."""
        now_s = asyncio.get_running_loop().time()
        ahead_s = look.time_s - now_s
        if self._ahead_s is not None and ahead_s < self._ahead_s - CLOCK_TOLERANCE_S:
            self._caught_up_s = max(self._caught_up_s, now_s + self._ahead_s)
            self._ahead_s = ahead_s
        self._ahead_s = ahead_s if self._ahead_s is None else max(self._ahead_s, ahead_s)
        return look.time_s >= self._caught_up_s


_QUESTION = pack("INFO", "server", "persistence")


def _read(reply: Reply) -> Look:
    if not isinstance(reply, bytes):
        raise Unreadable(f"INFO was answered by {reply!r}")
    lines = reply.decode("utf-8", "replace").splitlines()
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    return Look(
        time_s=int(said["server_time_usec"]) / 1e6,
        run=said["run_id"],
        is_idle=said["aof_pending_bio_fsync"] == "0",
        fails=said["aof_last_write_status"] != "ok",
        rewrites=int(said["aof_rewrites"]),
    )
