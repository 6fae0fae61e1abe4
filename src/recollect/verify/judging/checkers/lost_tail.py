"""After a fault, acknowledged messages missing, all later than every kept one of that session.

Verifies: messages missing for good after a disturbance, if of those acknowledged before it no later message of
the session is kept. Messages written after the disturbance do not count as kept.
Does not verify: messages never read after the fault; losses without a disturbance (see lost-update).
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, before_fault, lead_of, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.losses import was_seen
from recollect.verify.judging.survivors import after_a_disturbance

NAME = "lost-tail"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return [detection for detection, is_hole in after_a_disturbance(evidence, claimed) if not is_hole]


def describe(evidence: Evidence, detection: Detection) -> str:
    lead_s = lead_of(evidence, detection)
    if lead_s is not None and lead_s < 0 and not was_seen(evidence, detection.element):
        return (
            f"Acknowledged in the middle of a fault, and never seen: {subject(evidence, detection)}"
            f"{before_fault(evidence, detection)}, is missing from the read that ended at event "
            f"{detection.events[1]} and from every other."
        )
    return (
        f"The end of the session is gone: {subject(evidence, detection)}{before_fault(evidence, detection)}, is "
        f"missing from the read that ended at event {detection.events[1]} and from every read since, with "
        f"everything later."
    )
