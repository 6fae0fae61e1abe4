"""How much CPU time an exploration has used, with its engine and its clients: on a machine with other work, the clock
on the wall says little about how many schedules a second there could be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of_family() -> float:
    """Seconds used so far by this process and all that it started, those that have ended included."""
    return sum(_ticks(pid) for pid in _family(str(os.getpid()))) / _TICKS


def _family(pid: str) -> Iterator[str]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                yield from _family(child)


def _ticks(pid: str) -> int:
    with contextlib.suppress(OSError):
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return 0
