"""One appended message, twice in one read.

Verifies: every read; a write that was retried or whose outcome is unknown is one message all the same.
Does not verify: copies in different reads; two messages of equal content. A target that declares
`at_least_once` is not judged for writes that were retried or ended unknown.
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
            sighting.element, sighting.session, events, other=evidence.retries.get(turn, -1)
        )
        found.setdefault(sighting.element, detection)
    return [detection for message, detection in found.items() if message not in claimed]


def describe(evidence: Evidence, detection: Detection) -> str:
    retried = f"; its write was tried again at event {detection.other}" if detection.other >= 0 else ""
    written, ended = detection.events
    return (
        f"One read (event {ended}) returned {subject(evidence, detection)}, twice, although it was "
        f"appended once (event {written}){retried}."
    )
