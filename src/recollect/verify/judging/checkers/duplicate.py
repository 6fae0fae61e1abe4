"""One appended message, twice in one read.

Verifies: every read; a write that was retried or whose outcome is unknown is one message all the same.
Does not verify: copies in different reads; two messages of equal content. A target that declares
`at_least_once` is not judged for writes that were retried or ended unknown.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.finding import Finding, subject

NAME = "duplicate"


def check(evidence: Evidence, claimed: Set[int]) -> list[Finding]:
    lenient = "at_least_once" in evidence.header.traits
    found: dict[int, Finding] = {}
    for sighting in evidence.repeated:
        turn = evidence.message_turn[sighting.element]
        if lenient and (turn in evidence.retries or turn in evidence.unknown):
            continue
        events = (evidence.turn_invoked[turn], evidence.read_done[sighting.read])
        finding = Finding(sighting.element, sighting.session, events, other=evidence.retries.get(turn, -1))
        found.setdefault(sighting.element, finding)
    return [finding for message, finding in found.items() if message not in claimed]


def describe(evidence: Evidence, finding: Finding) -> str:
    retried = f"; its write was tried again at event {finding.other}" if finding.other >= 0 else ""
    written, ended = finding.events
    return (
        f"One read (event {ended}) returned {subject(evidence, finding)}, twice, although it was "
        f"appended once (event {written}){retried}."
    )
