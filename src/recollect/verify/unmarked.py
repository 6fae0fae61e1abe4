"""Texts that carry no number: which of the messages that say the same are the ones that a read returned?

They are told apart by their order. When a read returns fewer than were said, something must be left out, and the
reading that is kindest to the store is the one to take: what these texts test is whether an empty or a repeated text is
kept, and losses are found by the messages that carry a number. So left out are, in this order, the last of

1. what need not be in this read: writes under way, without an answer, or acknowledged after the read began;
2. what was acknowledged before the last fault: a lost tail ends there, and what was said since comes after the gap;
3. anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Unmarked:
    """One text in one session: the numbers of the messages that say it, in the order they were said."""

    numbers: list[int] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The event at which each was."""

    def those_read(self, count: int, *, began: int, disturbed: int) -> list[int]:
        """The numbers of `count` such texts in a read that began at one event, after a fault at another (-1: none)."""
        possible = [number for number in self.numbers if number not in self.failed]
        surplus = max(0, len(possible) - count)

        def doubt(number: int) -> tuple[int, int]:
            event = self.acknowledged.get(number)
            rank = 0 if event is None or event > began else 1 if event < disturbed else 2
            return rank, -number

        absent = set(sorted(possible, key=doubt)[:surplus])
        return [number for number in possible if number not in absent] or self.numbers.copy()
