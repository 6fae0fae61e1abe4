"""Acknowledged and never readable, or gone without a fault and without a proven culprit.

Verifies: messages missing for good without a fault or an expiry, which no other writer provably went over and which are
not the oldest end of their session.
Does not verify: why; messages that nobody read after their acknowledgement.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.culprits import fates
from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.losses import losses, shared_sessions, was_seen

NAME = "dropped"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    excused = shared_sessions(evidence) if "single_writer" in evidence.header.traits else set()
    decided = fates(evidence)
    return [
        Detection(
            loss.message,
            evidence.session_of(loss.message),
            (evidence.acknowledged(loss.message), evidence.read_done[loss.absence.read]),
        )
        for loss in losses(evidence)
        if loss.message in decided
        and decided[loss.message][0] == NAME
        and loss.message not in claimed
        and evidence.session_of(loss.message) not in excused
    ]


def describe(evidence: Evidence, detection: Detection) -> str:
    never = "" if was_seen(evidence, detection.element) else " was in no read: it"
    return (
        f"No fault came between and nobody wrote over it, and yet {subject(evidence, detection)},{never} is missing "
        f"from the read that ended at event {detection.events[1]} and from every read since."
    )
