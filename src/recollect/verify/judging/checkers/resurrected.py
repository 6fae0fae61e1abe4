"""Visible after an acknowledged `forget`.

Verifies: messages acknowledged, or seen by a read that ended, before the forget was invoked, in reads that
began after it was acknowledged.
Does not verify: writes that overlap the forget or are retried after it; forgets with an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.finding import Finding, subject

NAME = "resurrected"


def check(evidence: Evidence, claimed: Set[int]) -> list[Finding]:
    found: dict[int, Finding] = {}
    for sighting, forgotten in evidence.resurrected:
        events = (forgotten, evidence.read_invoked[sighting.read], evidence.read_done[sighting.read])
        found.setdefault(sighting.element, Finding(sighting.element, sighting.session, events))
    return [finding for message, finding in found.items() if message not in claimed]


def describe(evidence: Evidence, finding: Finding) -> str:
    forgotten, begun, ended = finding.events
    return (
        f"Forgotten and yet there: {subject(evidence, finding)}, is in the read from event {begun} to "
        f"{ended}, although the session's forget had been acknowledged at event {forgotten}."
    )
