"""Every session with acknowledged messages reads as empty, without any error.

Verifies: after each disturbance, the first whole read of every session that was read again; with no
disturbance at all, the last whole read of every session. "Empty" means that nothing written before is left:
new messages do not make a wiped memory whole.
Does not verify: sessions that were never read again. What expired as time passed is not a reset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from recollect.verify.evidence import NEVER, Evidence, Loss
from recollect.verify.finding import Finding, before_fault, subject
from recollect.verify.losses import losses

NAME = "silent-reset"


def check(evidence: Evidence, claimed: Set[int]) -> list[Finding]:
    by_read: dict[int, list[Loss]] = defaultdict(list)
    for loss in losses(evidence):
        if not loss.expired:
            by_read[loss.absence.read].append(loss)
    if not by_read:
        return []
    reset = [loss for read in _reset_reads(evidence, by_read) for loss in by_read[read]]
    return [
        Finding(
            loss.message,
            evidence.session_of(loss.message),
            (evidence.acknowledged(loss.message), evidence.read_done[loss.absence.read]),
            disturbance=loss.disturbance,
            moment_s=0.0
            if loss.disturbance is None
            else evidence.moment_s(loss.disturbance, loss.absence.since, loss.absence.read),
        )
        for loss in reset
        if loss.message not in claimed
    ]


def _reset_reads(evidence: Evidence, by_read: dict[int, list[Loss]]) -> list[int]:
    """The reads that found nothing, of those moments at which all sessions had nothing."""
    if not evidence.recoveries:
        last = [read for read in evidence.last_whole_read.values() if read != NEVER]
        empty = all(not evidence.read_size[read] for read in last)
        return sorted(by_read) if empty and all(not evidence.read_size[read] for read in by_read) else []
    epochs: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for recovery in evidence.recoveries:
        epochs[recovery.epoch].append((recovery.read, recovery.kept))
    reset: list[int] = []
    for reads in epochs.values():
        if not any(kept for _, kept in reads):
            reset += [read for read, _ in reads if read in by_read]
    return reset


def describe(evidence: Evidence, finding: Finding) -> str:
    return (
        f"Every session came back empty and no error was raised: {subject(evidence, finding)}"
        f"{before_fault(evidence, finding)}, is the first of them; the read that ended at event "
        f"{finding.events[1]} began after its acknowledgement and returned nothing older."
    )
