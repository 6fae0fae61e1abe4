"""Filling sessions before the fault strikes: `--messages-per-session`.

What is lost, and how long a read takes, depends on how long sessions already are. So the writers first bring every
session to the wanted length, sharing the work, and then follow their plan. Only acknowledged messages count: what
failed or ended unknown is written again, as another message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recollect.verify.running.workloads.append import sentence
from recollect.verify.running.workloads.intents import AppendTurn, Body, Plan, Planner, ReadBack, SaveBack

TURN_MAX = 20
"""Messages in one turn, where the store takes several."""


class Filling:
    """What is still missing in each session. Writers take a piece each, and give back what was not written."""

    def __init__(self, sessions: Sequence[str], messages: int) -> None:
        self._missing = dict.fromkeys(sessions, messages)
        self._taken: dict[str, int] = dict.fromkeys(sessions, 0)

    @property
    def missing(self) -> int:
        return sum(self._missing.values()) + sum(self._taken.values())

    def plan(self, planner: Planner, then: Callable[[Planner], Plan]) -> Plan:
        """The plan of one writer: its share of the filling, then what it does otherwise."""
        whole_list, batches = "whole-list" in planner.abilities, "batches" in planner.abilities
        while (session := self._next(planner.sessions)) is not None:
            count = min(self._missing[session], TURN_MAX if batches or whole_list else 1)
            self._missing[session] -= count
            self._taken[session] += count
            kept = False
            try:
                bodies = tuple(Body(sentence(planner.rng)) for _ in range(count))
                if whole_list and (yield ReadBack(session)) != "ok":
                    continue
                kept = (yield (SaveBack if whole_list else AppendTurn)(session, bodies)) == "ok"
            finally:  # also when the writer is killed in the middle of it
                self._taken[session] -= count
                self._missing[session] += 0 if kept else count
        yield from then(planner)

    def _next(self, sessions: Sequence[str]) -> str | None:
        """The session that lacks most; one that another writer fills right now comes last."""
        lacking = [each for each in sessions if self._missing.get(each, 0) > 0]
        return max(lacking, key=lambda each: (not self._taken[each], self._missing[each]), default=None)
