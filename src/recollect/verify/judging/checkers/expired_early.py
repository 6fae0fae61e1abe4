"""Gone before its declared retention, clock bound considered.

Verifies: messages missing for good where only the clock was tampered with, by less than their retention
(none declared means for ever); and, without a disturbance, sessions with a declared retention that vanish
from the oldest message on.
Does not verify: messages whose end of life lies within the clock bound; losses with another fault in between.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.losses import losses

NAME = "expired-early"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found = []
    for loss in losses(evidence):
        if not loss.expired or loss.message in claimed:
            continue
        retention = evidence.retention.get(evidence.message_turn[loss.message])
        declared_s = retention.retention_s if retention is not None else evidence.header.retain_s
        life = "for ever" if declared_s is None else f"for {declared_s:g} s"
        events = (evidence.acknowledged(loss.message), evidence.read_done[loss.absence.read])
        session = evidence.session_of(loss.message)
        detection = Detection(loss.message, session, events, disturbance=loss.disturbance, text=life)
        found.append(detection)
    return found


def describe(evidence: Evidence, detection: Detection) -> str:
    after = ""
    if detection.disturbance is not None:
        after = f" after {detection.disturbance.name} (event {detection.disturbance.injected})"
    return (
        f"Expired too early: {subject(evidence, detection)}, was to be kept {detection.text} and is missing from "
        f"the read that ended at event {detection.events[1]}{after}."
    )
