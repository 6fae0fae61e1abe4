"""After a fault, an acknowledged message missing while a later one of the session is kept.

Verifies: messages missing for good after a disturbance that did not take a provably later message: one whose
write began after the acknowledgement, or that reads showed after it, and that was itself acknowledged before
the disturbance.
Does not verify: messages never read after the fault; losses without a disturbance (see lost-update).
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, before_fault, name_of, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.survivors import after_a_disturbance

NAME = "hole"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return [detection for detection, is_hole in after_a_disturbance(evidence, claimed) if is_hole]


def describe(evidence: Evidence, detection: Detection) -> str:
    return (
        f"A gap: {subject(evidence, detection)}{before_fault(evidence, detection)}, is missing from the read "
        f"that ended at event {detection.events[1]} and from every read since, while the later "
        f"{name_of(detection.other)} is there."
    )
