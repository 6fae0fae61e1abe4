"""Listed but not found by search, or the reverse.

Verifies: messages acknowledged before the search began, and that forgotten ones are no longer found.
Does not verify: ranking and relevance; messages written while the search ran.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence

NAME = "index-divergence"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found: dict[int, Detection] = {}
    for divergence in evidence.divergences:
        text = "listed as a row, not found by search"
        if not divergence.listed:
            text = "found by search, not listed as a row"
        session = evidence.session_of(divergence.message)
        detection = Detection(divergence.message, session, (divergence.at,), text=text)
        found.setdefault(divergence.message, detection)
    return [detection for message, detection in found.items() if message not in claimed]


def describe(evidence: Evidence, detection: Detection) -> str:
    return f"Index and rows differ: {subject(evidence, detection)}, is {detection.text} (event {detection.events[0]})."
