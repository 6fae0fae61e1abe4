"""One appended message, twice in one read.

Verifies: every read; a write that was retried or whose outcome is unknown is still one message. Where the store
takes no turn id and the run sent the write again after an honest error, the store could not have recognised it: up to
as many copies as attempts are `exposed`, more are the store's own fault.
Does not verify: copies in different reads; two messages with equal content. A target that declares
`at_least_once` is not judged on writes that were retried or ended unknown.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence

NAME = "duplicate"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    lenient = "at_least_once" in evidence.header.traits
    found: dict[int, Detection] = {}
    for sighting in evidence.repeated:
        turn = evidence.message_turn[sighting.element]
        if lenient and (turn in evidence.retries or turn in evidence.unknown):
            continue
        events = (evidence.turn_invoked[turn], evidence.read_done[sighting.read])
        detection = Detection(
            sighting.element,
            sighting.session,
            events,
            other=evidence.retries.get(turn, -1),
            text=_times(sighting.copies),
            exposed=_unprotected(evidence, turn, sighting.copies),
        )
        former = found.setdefault(sighting.element, detection)
        if former.exposed and not detection.exposed:
            found[sighting.element] = detection
    return [detection for message, detection in found.items() if message not in claimed]


def _unprotected(evidence: Evidence, turn: int, copies: int) -> bool:
    """Whether the run's own attempts explain every copy, and the store had no turn id to recognise them by."""
    return _has_no_turns(evidence) and copies <= evidence.attempts.get(turn, 1)


def _has_no_turns(evidence: Evidence) -> bool:
    abilities = evidence.header.abilities
    return abilities is not None and "turn" not in abilities


def describe(evidence: Evidence, detection: Detection) -> str:
    written, ended = detection.events
    returned = f"One read (event {ended}) returned {subject(evidence, detection)}, {detection.text}"
    attempts = evidence.attempts.get(evidence.message_turn[detection.element], 1)
    if attempts > 1 and _has_no_turns(evidence) and not detection.exposed:
        tried = f"first at event {written}, last at event {detection.other}"
        return f"{returned}, although its write was tried only {_times(attempts)}: {tried}."
    retried = f"; its write was tried again at event {detection.other}" if attempts > 1 else ""
    untold = ", and the store takes no turn id" if detection.exposed else ""
    return f"{returned}, although it was appended once (event {written}){retried}{untold}."


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
