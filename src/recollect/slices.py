"""Long reads, a slice at a time, so that they keep their time limit and other tasks get their turn.

The engine may answer a read of a million messages in time; decoding them takes seconds more and would block the event
loop. So that is done in slices, with a look at the clock after each.
"""

import asyncio
import time
from collections.abc import Iterator

from recollect.errors import EngineUnavailable

SLICE = 1_000
"""Messages; a few milliseconds."""


async def finished(steps: Iterator[None], deadline: float) -> bool:
    """Runs the steps, each a slice of work, and lets others run in between. False if the deadline came first."""
    for _ in steps:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0)
    return True


def too_long(timeout_s: float) -> EngineUnavailable:
    return EngineUnavailable(
        f"reading took longer than {timeout_s:g} s; ask for fewer messages with last=, or open with a larger timeout_s"
    )
