"""An element of another session.

Verifies: every element of every read that carries the number of a message appended to another session.
Does not verify: elements without a number; those are phantoms.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.finding import Finding, name_of

NAME = "cross-session-leak"


def check(evidence: Evidence, claimed: Set[int]) -> list[Finding]:
    found: dict[int, Finding] = {}
    for sighting in evidence.leaks:
        message = sighting.element
        if message < 0:
            message = evidence.odds[message].message or 0
        events = (evidence.turn_invoked[evidence.message_turn[message]], evidence.read_done[sighting.read])
        found.setdefault(message, Finding(message, sighting.session, events))
    return [finding for message, finding in found.items() if message not in claimed]


def describe(evidence: Evidence, finding: Finding) -> str:
    home = evidence.sessions[evidence.session_of(finding.element)]
    return (
        f'A read of session "{evidence.sessions[finding.session]}" (event {finding.events[1]}) returned '
        f'message {name_of(finding.element)}, which was appended to session "{home}" '
        f"(event {finding.events[0]})."
    )
