"""An element that no operation of this run wrote.

Verifies: elements without a number, or with a number that no append had when the read ended.
Does not verify: elements with a known number; they may be leaked, corrupted or duplicates.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection
from recollect.verify.judging.evidence import Evidence

NAME = "phantom"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found: dict[int, Detection] = {}
    for sighting in evidence.strangers:
        # A number that was not given out yet must not claim the message that gets it later.
        key = sighting.element if sighting.element < 0 else -(1 << 40) - sighting.element
        text = evidence.odds[key].text if sighting.element < 0 else f"number {sighting.element}"
        events = (evidence.read_done[sighting.read],)
        found.setdefault(key, Detection(key, sighting.session, events, text=text))
    return list(found.values())


def describe(evidence: Evidence, detection: Detection) -> str:
    session = evidence.sessions[detection.session]
    shown = f" ({detection.text[:80]})" if detection.text else ""
    where = f'A read of session "{session}" (event {detection.events[0]})'
    return f"{where} returned an element that nobody wrote{shown}."
