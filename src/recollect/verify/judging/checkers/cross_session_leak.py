"""An element of another session.

Verifies: every element of every read that carries the number of a message appended to another session.
Does not verify: elements without a number; those are phantoms.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, name_of
from recollect.verify.judging.evidence import Evidence

NAME = "cross-session-leak"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found: dict[int, Detection] = {}
    for sighting in evidence.leaks:
        message = sighting.element
        if message < 0:
            message = evidence.odds[message].message or 0
        events = (evidence.turn_invoked[evidence.message_turn[message]], evidence.read_done[sighting.read])
        found.setdefault(message, Detection(message, sighting.session, events))
    return [detection for message, detection in found.items() if message not in claimed]


def describe(evidence: Evidence, detection: Detection) -> str:
    home = evidence.sessions[evidence.session_of(detection.element)]
    return (
        f'A read of session "{evidence.sessions[detection.session]}" (event {detection.events[1]}) returned '
        f'message {name_of(detection.element)}, which was appended to session "{home}" '
        f"(event {detection.events[0]})."
    )
