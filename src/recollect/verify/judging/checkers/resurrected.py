"""Visible after an acknowledged `forget`, or after a `retract` or `replace` that removed it.

Verifies: reads that began after the forget was acknowledged, for messages that were acknowledged, or seen by a
finished read, before the forget was invoked; the same for messages that a retract or a replace removed.
Does not verify: writes that overlap the forget or are retried after it; forgets, retracts and replaces with an unknown
outcome.
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
        disturbance = evidence.disturbance_between(forgotten, events[2])
        moment_s = 0.0 if disturbance is None else evidence.moment_s(disturbance, forgotten, sighting.read)
        detection = Detection(
            sighting.element, sighting.session, events, disturbance=disturbance, moment_s=moment_s
        )
        found.setdefault(sighting.element, detection)
    return [detection for message, detection in found.items() if message not in claimed]


def describe(evidence: Evidence, detection: Detection) -> str:
    forgotten, begun, ended = detection.events
    fault = "" if detection.disturbance is None else f", with {detection.disturbance.name} in between"
    if detection.element in evidence.taken_back:
        return (
            f"Removed, but still there: {subject(evidence, detection)}, is in the read from event {begun} to {ended}, "
            f"although its removal had been acknowledged at event {forgotten}{fault}."
        )
    return (
        f"Forgotten, but still there: {subject(evidence, detection)}, is in the read from event {begun} to "
        f"{ended}, although the session's forget had been acknowledged at event {forgotten}{fault}."
    )
