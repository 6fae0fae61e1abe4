"""Threads that somebody else started: once they sleep, they have nothing more to say."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_OURS = ("ThreadPoolExecutor", "recollect", "asyncio_")
"""Names of pools whose jobs are known, since the loop submits them."""

NAP_S = 0.2
"""While somebody else has the lock, SQLite looks again after a tenth of a second, or sooner."""
_CALLS = {"x86_64": ("35 ", "230 "), "aarch64": ("101 ", "115 ")}.get(platform.machine(), ())
"""The system calls of a thread that sleeps for a time, and not until somebody wakes it."""

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


class Naps:
    """Threads that sleep for a moment and look again, as they do in SQLite while somebody else has the lock."""

    def __init__(self) -> None:
        self._long: dict[str, list[str]] = {}
        """Threads that sleep for longer than that, and how often they had run when they began."""

    def await_looks(self) -> None:
        """Waits until each of them has looked once more, and has got the lock or sleeps again."""
        looked = False
        for number in native_threads() - {str(threading.get_native_id())}:
            if not _is_sleeping(number) or self._long.get(number) == (before := _turns([number])):
                continue
            end = real_clock() + NAP_S
            while (same := _turns([number]) == before) and real_clock() < end:
                sleep(0.0005)
            looked = looked or not same
            if same:
                self._long[number] = before
        if looked:
            await_idle()


def _is_sleeping(number: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/self/task/{number}/syscall").read_text().startswith(_CALLS)
    return False


def all_asleep() -> bool:
    """Whether every thread but this one waits."""
    return _asleep(native_threads() - {str(threading.get_native_id())})


def all_wait(is_idle: Callable[[], bool], numbers: Collection[str] | None = None) -> bool:
    """Whether these threads, or all but this one, wait for something other than an answer of the engine. They are
    looked at one after the other, and one may have woken another meanwhile: then it does not count."""
    found = native_threads() - {str(threading.get_native_id())} if numbers is None else numbers
    before = _turns(found)
    return _asleep(found) and is_idle() and _asleep(found) and _turns(found) == before


def await_wait(is_idle: Callable[[], bool], numbers: Collection[str], limit_s: float = 5.0) -> None:
    """Waits until these threads have nothing more to do."""
    end = real_clock() + limit_s
    while not all_wait(is_idle, numbers) and real_clock() < end:
        sleep(0.0002)


def _asleep(numbers: Collection[str]) -> bool:
    return all(is_asleep(f"self/task/{number}") for number in numbers)


def _turns(numbers: Collection[str]) -> list[str]:
    """How often each has run."""
    found = []
    for number in numbers:
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/self/task/{number}/schedstat").read_text())
    return found


def native_threads() -> set[str]:
    """The numbers of this process's threads, including those that Python does not know."""
    return set(os.listdir("/proc/self/task"))  # noqa: PTH208  (`iterdir` takes ten times as long)


def is_asleep(who: str) -> bool:
    """Whether a process, or a thread of ours (`self/task/N`), waits or is gone."""
    try:  # thousands of times a second: a `Path` would take three times as long
        file = os.open(f"/proc/{who}/stat", os.O_RDONLY)
    except OSError:
        return True
    try:
        said = os.read(file, 512)
    except OSError:
        return True
    finally:
        os.close(file)
    return said[said.rfind(b")") + 2 :].startswith(b"S")
