"""Texts that carry no number: which of the messages that say the same are the ones that a read returned?

They are told apart by their order. When a read returns fewer than were said, some must be left out, and we choose the
explanation that is kindest to the store: these texts test whether an empty or a repeated text is kept, and losses are
found by the messages that carry a number. Of all ways to leave some out and keep the rest in order, the cheapest is
taken. Leaving one out, or keeping one in a certain place, costs

    nothing   what need not be in this read: writes under way, without an answer, or acknowledged after it began
    little    what was acknowledged before the last fault: a lost tail ends there, and what was said since follows it
    much      what nothing excuses
    most      an impossible place: after a message whose write began when this one was already acknowledged, or
              before one that was acknowledged before this one was said

and among equals the last is left out; or the first, if the store says that it keeps only the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from recollect.verify.target import pipe

EXPOSED, CERTAIN, MISPLACED = 1.0, 1e3, 1e6
_LATER = 1e-6


@dataclass
class Moments:
    """The events at which each message's write began, and was acknowledged."""

    invoked: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)


class Standing(NamedTuple):
    """Where a text stands in a read: the event at which the last write of the messages before it began, and the event
    at which the first of the messages after it was acknowledged."""

    behind: float
    ahead: float


def standings(numbers: Sequence[int], moments: Moments) -> list[Standing]:
    """Where the texts without a number (-1) stand among the others."""
    behind, ahead = float("-inf"), float("inf")
    backward: list[float] = []
    for number in reversed(numbers):
        if number < 0:
            backward.append(ahead)
        else:
            ahead = min(ahead, moments.acknowledged.get(number, ahead))
    found = []
    for number in numbers:
        if number < 0:
            found.append(Standing(behind, backward.pop()))
        else:
            behind = max(behind, moments.invoked.get(number, behind))
    return found


@dataclass
class Unmarked:
    """One text in one session: the numbers of the messages that say it, in the order they were said."""

    numbers: list[int] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)

    def those_read(
        self,
        where: Sequence[Standing],
        moments: Moments,
        *,
        began: int,
        disturbed: int,
        keeps_newest: bool = False,
    ) -> list[int]:
        """The numbers of the texts at these places of a read that began at event `began`, after a fault at event
        `disturbed` (-1: none). As many numbers as places, unless there are more places than texts ever said."""
        possible = [number for number in self.numbers if number not in self.failed]
        surplus = len(possible) - len(where)
        if surplus <= 0 or not where:
            return possible or self.numbers.copy()
        later = -_LATER if keeps_newest else _LATER
        omitting = [
            self._omitting(number, moments, began, disturbed) - index * later
            for index, number in enumerate(possible)
        ]
        left_out = _cheapest(possible, where, omitting, moments)
        return [number for index, number in enumerate(possible) if index not in left_out]

    @staticmethod
    def _omitting(number: int, moments: Moments, began: int, disturbed: int) -> float:
        acknowledged = moments.acknowledged.get(number)
        if acknowledged is None or acknowledged > began:
            return 0.0
        return EXPOSED if acknowledged < disturbed else CERTAIN


class UnnumberedTexts:
    """All such texts of one run, and the moments that tell them apart."""

    def __init__(self, *, keeps_newest: bool = False) -> None:
        """`keeps_newest`: the store says that it keeps a number of messages, and drops the oldest."""
        self.moments = Moments()
        self._keeps_newest = keeps_newest
        self._said: dict[tuple[str, str], Unmarked] = {}

    def say(self, session: str, text: str, number: int) -> None:
        self._said.setdefault((session, text), Unmarked()).numbers.append(number)

    def unsay(self, session: str, text: str, number: int) -> None:
        """Its write certainly failed, so no read can contain it."""
        self._said[session, text].failed.add(number)

    def in_read(
        self, session: str, reply: pipe.Elements, *, began: int, disturbed: int
    ) -> dict[str, list[int]]:
        """For each such text of a read, the numbers of its occurrences."""
        where: dict[str, list[Standing]] = {}
        if any((session, item.excerpt) in self._said for item in reply.odd):
            for item, standing in zip(reply.odd, standings(reply.numbers, self.moments), strict=True):
                where.setdefault(item.excerpt, []).append(standing)
        return {
            text: self._said[session, text].those_read(
                found, self.moments, began=began, disturbed=disturbed, keeps_newest=self._keeps_newest
            )
            for text, found in where.items()
            if (session, text) in self._said
        }


def _cheapest(
    possible: Sequence[int], where: Sequence[Standing], omitting: Sequence[float], moments: Moments
) -> set[int]:
    """Chooses which to leave out: a shortest path, with a row per number left out and a step per place filled."""
    surplus = len(possible) - len(where)
    row = [0.0]
    for place, here in enumerate(where):
        row.append(row[-1] + _misplaced(possible[place], here, moments))
    rows = [row]
    for left in range(1, surplus + 1):
        above, row = row, [row[0] + omitting[left - 1]]
        for place, here in enumerate(where):
            filled = row[place] + _misplaced(possible[place + left], here, moments)
            row.append(min(filled, above[place + 1] + omitting[place + left]))
        rows.append(row)
    absent, place = set(), len(where)
    for left in range(surplus, 0, -1):
        while place and rows[left][place] < rows[left - 1][place] + omitting[place + left - 1]:
            place -= 1
        absent.add(place + left - 1)
    return absent


def _misplaced(number: int, where: Standing, moments: Moments) -> float:
    acknowledged = moments.acknowledged.get(number)
    too_early = acknowledged is not None and acknowledged < where.behind
    return MISPLACED if too_early or moments.invoked.get(number, -1) > where.ahead else 0.0
