"""The oldest end of a session is gone, without a forget and without an expiry.

Verifies: messages missing for good without a fault, everything older than them gone too, where messages that were there
with them stayed for longer.
Does not verify: sessions of which nothing is left (see silent-reset, dropped).
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.culprits import fates
from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.losses import losses, shared_sessions

NAME = "trimmed"


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
    return (
        f"The oldest end of the session is gone: {subject(evidence, detection)}, is missing from the read that ended "
        f"at event {detection.events[1]} and from every read since, with everything older; nobody had it forgotten."
    )
