"""A read comes back empty or short while the engine, asked directly, still has the rows.

Verifies: missing messages of a session whose rows were counted directly, if nothing wrote to the session
between the read and the count.
Does not verify: which rows the engine has; sessions that were not counted, or were written to meanwhile; what is
older than the window that the store declares.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.printable import counted
from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence
from recollect.verify.judging.losses import out_of_window

NAME = "hidden"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return [
        Detection(
            hidden.message,
            evidence.session_of(hidden.message),
            (evidence.acknowledged(hidden.message), evidence.read_done[hidden.read], hidden.count_index),
            text=f"{counted(hidden.rows, 'row')}, the read returned {evidence.read_size[hidden.read]}",
        )
        for hidden in evidence.hidden.values()
        if hidden.message not in claimed and not out_of_window(evidence, hidden.message, hidden.read)
    ]


def describe(evidence: Evidence, detection: Detection) -> str:
    return (
        f"Reading does not return {subject(evidence, detection)}, but it is not gone: when asked directly (event "
        f"{detection.events[2]}), the engine has {detection.text} (event {detection.events[1]})."
    )
