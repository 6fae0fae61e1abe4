"""Makes a run smaller, step by step, until nothing smaller shows the same anomaly.

A size is a scenario: writers, sessions, readers, operations per client, messages per turn. Starting from the smallest
that showed the anomaly, every size that reduces one of these is tried, the boldest first; the first that shows it
becomes the smallest. On a real engine a run that does not show it may be bad luck, so a size gets two chances. It ends
when every smaller size has been tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from recollect.verify.running.scenario import Scenario

CHANCES = 2
FIRST_OPERATIONS = 6
READS_FIRST = frozenset({"rewrite", "compact"})
"""Workloads that load before they save: with one operation they write nothing, so nothing could be concluded."""

TURNS = frozenset({"turns", "trimmed", "mixed", "search", "context"})
"""Workloads whose turns may have several messages."""

Size = tuple[int, int, int, int, int]


def size_of(scenario: Scenario) -> Size:
    """Everything that can be reduced, the most telling first."""
    unlimited = 1_000_000
    operations = unlimited if scenario.ops_max is None else scenario.ops_max
    turn = unlimited if scenario.turn_max is None else scenario.turn_max
    return (scenario.writers, operations, scenario.sessions, scenario.readers, turn)


class Shrinker:
    """Hands out the sizes to try and is told how each ended; several may be under way at once."""

    def __init__(self, scenario: Scenario) -> None:
        self.smallest = scenario
        self._tried: Counter[Size] = Counter()
        self._under_way: Counter[Size] = Counter()

    def next(self) -> Scenario | None:
        """What to run next; None if there is nothing, or nothing until another run has ended."""
        for candidate in _smaller(self.smallest):
            size = size_of(candidate)
            if self._tried[size] + self._under_way[size] < CHANCES:
                self._under_way[size] += 1
                return candidate
        return None

    def heard(self, scenario: Scenario, *, shows: bool) -> bool:
        """Notes how the run ended; True if it is the smallest now."""
        size = size_of(scenario)
        self._under_way[size] -= 1
        self._tried[size] += 1
        if shows and _no_larger(size, size_of(self.smallest)):
            self.smallest = scenario
            return True
        return False

    @property
    def finished(self) -> bool:
        return all(self._tried[size_of(candidate)] >= CHANCES for candidate in _smaller(self.smallest))


def _no_larger(size: Size, than: Size) -> bool:
    return size != than and all(mine <= other for mine, other in zip(size, than, strict=True))


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Sizes with less of one thing, without those that could not show anything."""
    change = msgspec.structs.replace
    least = 2 if scenario.workload in READS_FIRST else 1
    operations = scenario.ops_max
    if operations is None:
        few = change(scenario, sessions=1, readers=0, ops_max=FIRST_OPERATIONS)
        if scenario.writers > 2:
            yield change(few, writers=2)
        yield few
        for more in (15, 40, 120):
            yield change(scenario, sessions=1, readers=0, ops_max=more)
            yield change(scenario, ops_max=more)
        return
    if scenario.readers:
        yield change(scenario, readers=0)
    if scenario.writers > 1:
        yield change(scenario, writers=1)
        if scenario.writers > 2:
            yield change(scenario, writers=2)
    if scenario.sessions > 1:
        yield change(scenario, sessions=1)
    for fewer in dict.fromkeys((operations // 3, operations // 2, operations - 1)):
        if least <= fewer < operations:
            yield change(scenario, ops_max=fewer)
    if scenario.workload in TURNS and scenario.turn_max != 1:
        yield change(scenario, turn_max=1)
        if scenario.turn_max is None:
            yield change(scenario, turn_max=2)
