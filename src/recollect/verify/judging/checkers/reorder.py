"""Two reads disagree on order, or a writer's own or the real-time order of appends is broken.

Verifies: the order of the messages of one turn; of appends that did not overlap (which includes each
writer's own acknowledged appends); and of any two messages between two reads, proven with both reads.
Does not verify: the order of overlapping appends, except that all reads agree on it; the order of a message that is
there twice, or may be: when it was sent again to a store without turn ids, the first copy may have left the window that
a read shows. A target that declares `ordered_by_clock` is not judged by real time.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, name_of, subject
from recollect.verify.judging.evidence import Evidence

NAME = "reorder"
_TURN, _REAL_TIME, _READS = "turn", "real-time", "reads"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    by_clock = "ordered_by_clock" in evidence.header.traits
    found: dict[int, Detection] = {}
    for inversion in evidence.inversions.values():
        if by_clock and not inversion.same_turn:
            continue
        events: tuple[int, ...]
        events = (evidence.acknowledged(inversion.message), evidence.read_done[inversion.read])
        session = evidence.session_of(inversion.message)
        rule = _TURN
        if not inversion.same_turn:
            rule, events = (
                _REAL_TIME,
                (*events, evidence.turn_invoked[evidence.message_turn[inversion.later]]),
            )
        found[inversion.message] = Detection(
            inversion.message, session, events, other=inversion.later, text=rule
        )
    for proven in evidence.proven:
        events = (evidence.read_done[proven.read], evidence.read_done[proven.reverse])
        session = evidence.session_of(proven.message)
        detection = Detection(proven.message, session, events, other=proven.other, text=_READS)
        found.setdefault(proven.message, detection)
    # Which of two copies a read shows tells nothing about order.
    doubled = {sighting.element for sighting in evidence.repeated}
    return [
        detection
        for message, detection in found.items()
        if message not in claimed
        and not doubled & {message, detection.other}
        and not any(_may_be_twice(evidence, each) for each in (message, detection.other))
    ]


def _may_be_twice(evidence: Evidence, message: int) -> bool:
    abilities = evidence.header.abilities
    known_by_turn = abilities is None or "turn" in abilities
    return not known_by_turn and evidence.message_turn[message] in evidence.retries


def describe(evidence: Evidence, detection: Detection) -> str:
    who, other = subject(evidence, detection), name_of(detection.other)
    if detection.text == _READS:
        return (
            f"Two reads disagree: in the one that ended at event {detection.events[0]}, {who}, comes after "
            f"{other}, in the one that ended at event {detection.events[1]} before it."
        )
    if detection.text == _TURN:
        return (
            f"Out of order: {who}, stands behind {other} in the read that ended at event {detection.events[1]}, "
            "although it comes first in their turn."
        )
    return (
        f"Out of order: {who}, stands behind {other} in the read that ended at event {detection.events[1]}, "
        f"although the write of {other} only began afterwards (event {detection.events[2]})."
    )
