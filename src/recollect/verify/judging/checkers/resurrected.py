"""Visible after an acknowledged `forget`.

Verifies: messages acknowledged, or seen by a read that ended, before the forget was invoked, in reads that
began after it was acknowledged.
Does not verify: writes that overlap the forget or are retried after it; forgets with an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence

NAME = "resurrected"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found: dict[int, Detection] = {}
    for sighting, forgotten in evidence.resurrected:
        events = (forgotten, evidence.read_invoked[sighting.read], evidence.read_done[sighting.read])
        found.setdefault(sighting.element, Detection(sighting.element, sighting.session, events))
    return [detection for message, detection in found.items() if message not in claimed]


def describe(evidence: Evidence, detection: Detection) -> str:
    forgotten, begun, ended = detection.events
    return (
        f"Forgotten and yet there: {subject(evidence, detection)}, is in the read from event {begun} to "
        f"{ended}, although the session's forget had been acknowledged at event {forgotten}."
    )
