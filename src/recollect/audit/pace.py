"""Limits how many records are read per second, so that an audit can run beside production."""

from __future__ import annotations

import asyncio
import time

BURST_S = 0.1
"""How far reading may run ahead of the rate, since pieces are read whole."""


class Pace:
    def __init__(self, rate: float | None) -> None:
        """None is as fast as possible."""
        self._rate = rate
        self._due = time.monotonic()

    async def spend(self, records: int) -> None:
        """Waits until this many more may have been read."""
        if self._rate is None:
            await asyncio.sleep(0)
            return
        now = time.monotonic()
        self._due = max(self._due, now - BURST_S) + max(records, 1) / self._rate
        await asyncio.sleep(max(0.0, self._due - now - BURST_S))
