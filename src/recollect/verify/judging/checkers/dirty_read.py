"""An element whose append ended `fail`.

Verifies: every message of a write whose attempts were all refused, in any read at any time.
Does not verify: writes with an unknown outcome; those may appear.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import NEVER, Evidence

NAME = "dirty-read"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found = []
    for turn in sorted(evidence.failed):
        for message in evidence.turn_messages(turn):
            read = evidence.seen_at[message]
            if read != NEVER and message not in claimed:
                events = (evidence.turn_invoked[turn], evidence.read_done[read])
                found.append(Detection(message, evidence.turn_session[turn], events))
    return found


def describe(evidence: Evidence, detection: Detection) -> str:
    return (
        f"A read (event {detection.events[1]}) returned {subject(evidence, detection)}, although its write "
        f"(event {detection.events[0]}) was answered with an error that says nothing was written."
    )
