"""Acknowledged and never readable, or gone without a fault and without a proven culprit.

Verifies: messages missing for good without a fault or an expiry, if no other writer provably overwrote them and they
are not the oldest end of their session.
Does not verify: why they are gone; sessions that nobody read after the acknowledgement.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from recollect.verify.judging.culprits import with_fate
from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.losses import was_seen

NAME: Final = "dropped"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return with_fate(evidence, NAME, claimed)


def describe(evidence: Evidence, detection: Detection) -> str:
    never = "" if was_seen(evidence, detection.element) else " was in no read: it"
    return (
        f"There was no fault in between and nobody overwrote it, but {subject(evidence, detection)},{never} is missing "
        f"from the read that ended at event {detection.events[1]} and from every read since."
    )
