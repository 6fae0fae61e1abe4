"""How much CPU time an exploration has used, with its engine and its clients: a machine with other work makes the clock
on the wall say little about how many schedules a second there could be."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of_family() -> float:
    """Seconds used so far by this process and all that it started, those that have ended included."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
                used[int(folder.name)] = sum(map(int, fields[11:15]))
    me = os.getpid()
    return sum(ticks for pid, ticks in used.items() if _descends(pid, me, parents)) / _TICKS


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid > 1 and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor
