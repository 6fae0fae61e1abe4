"""A read misses another process's message acknowledged before the read began, and a later read has it.

Verifies: whole reads, and windows for messages that provably come after their first element or cursor.
Does not verify: messages that overlap a forget or may have expired. A reader's own write is
own-write-missing.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, client_named, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.lateness import late

NAME = "stale-read"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return late(evidence, claimed, own=False)


def describe(evidence: Evidence, detection: Detection) -> str:
    begun, ended, back = detection.events
    who = client_named(evidence, detection.other).capitalize()
    return (
        f"{who} read an old state: {subject(evidence, detection)}, is not in the read that "
        f"began later, at event {begun}, and ended at event {ended}; the read that "
        f"ended at event {back} has it."
    )
