"""A caller that gives up before its request ends, as after a closed connection or a timeout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Hashable
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")

FIRST_S = 0.001
"""The assumed duration of a request that was never waited for to the end."""
_WEIGHT = 0.2
_SPIN_S = 0.002
"""How long to spin before giving up: a loop's timers are no finer than a millisecond, and most requests are shorter."""


class GaveUp(Exception):
    """The caller gave up, and the store then gave no answer, or an error."""


class Patience:
    """The patience of one caller. It knows how long each kind of request usually takes."""

    def __init__(self) -> None:
        self._usual_s: dict[Hashable, float] = {}
        self._share: float | None = None

    def give_up_after(self, share: float) -> None:
        """Give the next request up after this share of the time it usually takes."""
        self._share = share

    async def wait_for(self, kind: Hashable, asked: Coroutine[Any, Any, _Answer]) -> _Answer:
        """The answer, or `GaveUp`. If the store answers despite being cancelled, the answer counts."""
        share, self._share = self._share, None
        if share is not None:
            return await self._wait_in_part(asked, share * self._usual_s.get(kind, FIRST_S))
        began = time.perf_counter()
        answer = await asked
        took_s = time.perf_counter() - began
        self._usual_s[kind] = took_s * _WEIGHT + self._usual_s.get(kind, took_s) * (1 - _WEIGHT)
        return answer

    async def _wait_in_part(self, asked: Coroutine[Any, Any, _Answer], after_s: float) -> _Answer:
        task = asyncio.ensure_future(asked)
        leaving = asyncio.ensure_future(_cancel(task, time.perf_counter() + after_s))
        try:
            return await task
        except (asyncio.CancelledError, Exception) as error:
            if leaving.done() and leaving.result():
                raise GaveUp from error
            raise
        finally:
            leaving.cancel()


async def _cancel(task: asyncio.Future[Any], at: float) -> bool:
    """Cancels the task at this time; False if it had already ended."""
    await asyncio.sleep(max(0.0, at - time.perf_counter() - _SPIN_S))
    while not task.done() and time.perf_counter() < at:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return task.cancel()
