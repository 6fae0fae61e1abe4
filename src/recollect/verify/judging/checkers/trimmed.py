"""The oldest end of a session is gone, without a forget and without an expiry.

Verifies: messages missing for good without a fault, with everything older gone too, while later messages that had been
read with them stayed longer.
Does not verify: sessions of which nothing is left (see silent-reset, dropped).
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from recollect.verify.judging.culprits import with_fate
from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence

NAME: Final = "trimmed"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return with_fate(evidence, NAME, claimed)


def describe(evidence: Evidence, detection: Detection) -> str:
    return (
        f"The oldest end of the session is gone: {subject(evidence, detection)}, is missing from the read that ended "
        f"at event {detection.events[1]} and from every read since, with everything older; nobody asked to forget it."
    )
