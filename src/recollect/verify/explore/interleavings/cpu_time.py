"""How much CPU time an exploration has used, with its engine and its clients: on a machine with other work, the clock
on the wall says little about how many schedules a second there could be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of_family() -> float:
    """Seconds used so far by this process and all that it started, those that have ended included."""
    return sum(_ticks(pid) for pid in _family(str(os.getpid()))) / _TICKS


def _family(pid: str) -> Iterator[str]:
    yield pid
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  (measuring should cost little)
            for child in _read(f"/proc/{pid}/task/{thread}/children").split():
                yield from _family(child)


def _ticks(pid: str) -> int:
    with contextlib.suppress(OSError):
        return sum(map(int, _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:15]))
    return 0


def _read(path: str) -> str:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 16).decode("utf-8", "replace")
    finally:
        os.close(file)
