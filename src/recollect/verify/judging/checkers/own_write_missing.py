"""A read misses the reader's own message, acknowledged before the read began; a later read has it.

Verifies: reads by the process that wrote the message.
Does not verify: messages that overlap a forget or may have expired. Other processes' messages are stale-read.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, client_named, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.lateness import late

NAME = "own-write-missing"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return late(evidence, claimed, own=True)


def describe(evidence: Evidence, detection: Detection) -> str:
    begun, ended, back = detection.events
    who = client_named(evidence, detection.other).capitalize()
    return (
        f"{who} does not see its own write: {subject(evidence, detection)}, is not in the "
        f"read that began at event {begun} and ended at event {ended}; the read that "
        f"ended at event {back} has it."
    )
