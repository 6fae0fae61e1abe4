"""An operation fails although nothing was broken.

Verifies: operations of an interleaving, where no fault is injected and the kit controls every wait, and appends to
older data by a single writer: an error that reaches the caller is the store's own. Does not verify: in an interleaving,
`Conflict` and `Refused`, which are answers, and errors that the target declares; operations that the caller cancelled;
timeouts from waiting for a client that the kit held up; runs with faults.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection
from recollect.verify.judging.evidence import Evidence

NAME = "raised"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return [
        Detection(-1 - end.at, end.session, (end.at,), silent=False, text=f"{end.operation}: {end.error}")
        for end in evidence.bad_ends
        if end.how == NAME
    ]


def describe(evidence: Evidence, detection: Detection) -> str:
    operation, _, error = detection.text.partition(": ")
    return (
        f"{operation} raised (event {detection.events[0]}) although nothing was broken: {error.rstrip('.')}."
    )
