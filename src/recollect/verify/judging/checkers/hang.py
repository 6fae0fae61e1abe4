"""An operation never ends.

Verifies: operations of an interleaving that still wait when nothing more can happen: no reply is on its way, no
timer is due before the deadline, and nobody else can move. Does not verify: operations that are slow; a client that
keeps asking the engine, and may be waiting for the engine's own clock; runs with faults.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection
from recollect.verify.judging.evidence import Evidence

NAME = "hang"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return [
        Detection(-1 - end.at, end.session, (end.at,), silent=False, text=end.operation)
        for end in evidence.bad_ends
        if end.how == NAME
    ]


def describe(evidence: Evidence, detection: Detection) -> str:
    return f"{detection.text} never ends (event {detection.events[0]}): nothing is left that could happen."
