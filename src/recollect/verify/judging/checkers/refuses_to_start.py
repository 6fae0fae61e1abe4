"""The engine does not come back on its own data within the deadline.

Verifies: every start that the runner recorded as refused.
Does not verify: a start that nobody tried; how long a successful start took.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection
from recollect.verify.judging.evidence import Evidence

NAME = "refuses-to-start"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found = []
    for refusal in evidence.refusals:
        last = next((d for d in reversed(evidence.disturbances) if d.injected < refusal.at), None)
        found.append(
            Detection(
                element=-1 - refusal.at,
                session=-1,
                events=(refusal.at,),
                silent=False,
                disturbance=last,
                text=refusal.error,
            )
        )
    return found


def describe(evidence: Evidence, detection: Detection) -> str:
    after = f" after {detection.disturbance.name}" if detection.disturbance is not None else ""
    return (
        f"The engine did not come back on its own data{after} (event {detection.events[0]}): {detection.text}"
    )
