"""There after its declared retention, clock bound considered.

Verifies: messages with a declared retention, in reads that began when the last renewal of their life (append,
read; see `HistoryHeader.refresh`) was certainly longer ago than that, by the engine's clock and its bound.
Does not verify: lives that a write with an unknown outcome may have renewed; `--retain`, which is a minimum.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import Evidence

NAME = "never-expired"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found = []
    for message, overdue in evidence.overdue.items():
        if message in claimed:
            continue
        events = (overdue.renewed, evidence.read_invoked[overdue.read], evidence.read_done[overdue.read])
        retention = evidence.retention[evidence.message_turn[message]]
        text = f"{overdue.age_s:.3f} s, its retention is {retention.retention_s:g} s"
        found.append(Detection(message, evidence.session_of(message), events, text=text))
    return found


def describe(evidence: Evidence, detection: Detection) -> str:
    renewed, begun, ended = detection.events
    return (
        f"Not expired: {subject(evidence, detection)}, is in the read from event {begun} to {ended}; its life "
        f"was last renewed by the write acknowledged at event {renewed} and is over by {detection.text}."
    )
