"""Threads that somebody else started: once they sleep, they have nothing more to say."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_OURS = ("ThreadPoolExecutor", "recollect", "asyncio_")
"""Names of pools whose jobs are known, since the loop submits them."""

sleep, real_clock = time.sleep, time.monotonic


def others_run(pool: ThreadPoolExecutor) -> bool:
    """Whether there are threads that are neither the main one nor a pool's."""
    if threading.active_count() <= 1:
        return False
    ours = getattr(pool, "_threads", ())
    return any(
        thread is not threading.main_thread() and thread not in ours and not thread.name.startswith(_OURS)
        for thread in threading.enumerate()
    )


def await_idle(limit_s: float = 0.5) -> None:
    """Waits until every other thread sleeps."""
    end = real_clock() + limit_s
    calm = 0
    while calm < 2 and real_clock() < end:
        sleep(0.0002)
        calm = calm + 1 if all_asleep() else 0


def all_asleep() -> bool:
    """Whether every thread but this one waits, including those that Python does not know."""
    me = str(threading.get_native_id())
    others = (path.name for path in Path("/proc/self/task").iterdir())
    return all(is_asleep(f"self/task/{number}") for number in others if number != me)


def is_asleep(who: str) -> bool:
    """Whether a process, or a thread of ours (`self/task/N`), waits or is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{who}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    return True
