"""One context read (several statements) mixes two states of the session.

Verifies: that every message one statement returned is also in the others that had to return it: those that
read everything, and windows, for what comes after their first element or cursor.
Does not verify: statements that do not overlap.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence

NAME = "fractured-read"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found: dict[int, Detection] = {}
    for fracture in evidence.fractures:
        events = (evidence.read_invoked[fracture.read], evidence.read_done[fracture.read])
        text = f"statement {fracture.has + 1} has it and statement {fracture.lacks + 1} lacks it"
        session = evidence.session_of(fracture.message)
        found.setdefault(fracture.message, Detection(fracture.message, session, events, text=text))
    return [detection for message, detection in found.items() if message not in claimed]


def describe(evidence: Evidence, detection: Detection) -> str:
    return (
        f"One context read (events {detection.events[0]} to {detection.events[1]}) mixes two states: of "
        f"{subject(evidence, detection)}, {detection.text}."
    )
