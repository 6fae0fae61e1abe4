"""A read misses the reader's own message, acknowledged before the read began; a later read has it.

Verifies: reads by the process that wrote the message.
Does not verify: messages that overlap a forget or may have expired. Other processes' messages are stale-read.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.evidence import NEVER, Evidence
from recollect.verify.finding import Finding, subject

NAME = "own-write-missing"


def check(evidence: Evidence, claimed: Set[int]) -> list[Finding]:
    found: dict[int, Finding] = {}
    for absence in evidence.absences:
        message = absence.message
        reader = evidence.read_process[absence.read]
        if absence.back == NEVER or message in claimed or reader != evidence.writer_of(message):
            continue
        reads = (
            evidence.read_invoked[absence.read],
            evidence.read_done[absence.read],
            evidence.read_done[absence.back],
        )
        session = evidence.session_of(message)
        found.setdefault(message, Finding(message, session, reads, other=reader))
    return list(found.values())


def describe(evidence: Evidence, finding: Finding) -> str:
    begun, ended, back = finding.events
    return (
        f"Process {finding.other} does not see its own write: {subject(evidence, finding)}, is not in the "
        f"read that began at event {begun} and ended at event {ended}; the read that "
        f"ended at event {back} has it."
    )
