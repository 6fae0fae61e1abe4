"""A reader sees less than it saw before.

Verifies: messages that one process saw in a whole read and not in a later one, where the write had not been
acknowledged when the later read began (acknowledged ones are stale, or lost).
Does not verify: windows, whose contents slide; different readers compared with each other.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, client_named, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.losses import out_of_window

NAME = "non-monotonic-read"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found: dict[int, Detection] = {}
    for regression in evidence.regressions:
        message = regression.message
        if message in claimed or out_of_window(evidence, message, regression.read):
            continue
        events = (evidence.read_done[regression.before], evidence.read_done[regression.read])
        disturbance = evidence.disturbance_between(events[0], events[1])
        reader = evidence.read_process[regression.read]
        session = evidence.session_of(message)
        detection = Detection(message, session, events, disturbance=disturbance, other=reader)
        found.setdefault(message, detection)
    return list(found.values())


def describe(evidence: Evidence, detection: Detection) -> str:
    after = f", {detection.disturbance.name} came between" if detection.disturbance is not None else ""
    who = client_named(evidence, detection.other).capitalize()
    return (
        f"{who} saw {subject(evidence, detection)}, in the read that ended at event "
        f"{detection.events[0]}, and no longer in the one that ended at event {detection.events[1]}{after}."
    )
