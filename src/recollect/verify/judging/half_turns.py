"""Turns of which a read has only a part, although no fault was near.

In a run with faults a half turn counts only after recovery: see `torn_turn`. In an interleaving nothing breaks and
every step is chosen, so a reader that sees half a turn sees what a user would see.
"""

from __future__ import annotations

from recollect.verify.judging.evidence import Evidence, HalfTurn
from recollect.verify.judging.history import AnyHistory
from recollect.verify.judging.order_proof import views

INTERLEAVINGS = "interleavings"
"""The workload of a history that is one interleaving."""
THEN = ";"
"""Between programs that are run one after the other on the same store, and between their schedules."""


def half_turns(history: AnyHistory, evidence: Evidence) -> list[HalfTurn]:
    """Each turn once, in the first read that has only a part of it. Interleavings never read windows."""
    if evidence.header.workload != INTERLEAVINGS or not evidence.has_batches:
        return []
    found: dict[int, HalfTurn] = {}
    for read, _, view in views(history):
        known = {element for element in view if 0 <= element < len(evidence.message_turn)}
        for turn in {evidence.message_turn[message] for message in known} - found.keys():
            messages = evidence.turn_messages(turn)
            seen = sum(message in known for message in messages)
            if seen < len(messages):
                found[turn] = HalfTurn(turn, read, seen)
    return sorted(found.values())
