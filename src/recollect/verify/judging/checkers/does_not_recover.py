"""No write succeeds after the fault is healed.

Verifies: the writes that began after the last healing, if they went on for `OUTAGE_S` and every one failed. A store
whose only connection died with the engine does this: its data is safe, but nobody can add to it.
Does not verify: how long a store takes to recover, if it takes less than that; reads that do not recover
(`unreadable`); a target that was given no time, or no writer, after the healing; one that never acknowledged a write,
also before the fault: it had nothing to come back to; a history whose end is missing, where it may have recovered;
writes that returned `False` and that a read shows: whatever it means by that, they succeed.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection
from recollect.verify.judging.evidence import Evidence, Outage
from recollect.verify.judging.losses import stored_and_false

NAME = "does-not-recover"
OUTAGE_S = 3.0
FAILED_MIN = 5
UNDISTURBED = "none"
"""The fault of the cells where nothing breaks."""


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    outage = evidence.outage
    if outage is None or outage.lasted_s < OUTAGE_S or outage.failed < FAILED_MIN or evidence.refusals:
        return []
    if not evidence.acked or evidence.truncated or _only_says_false(evidence, outage):
        return []
    events = (outage.healed, outage.last)
    return [Detection(-1 - outage.last, -1, events, silent=False, text=outage.error, elements=outage.failed)]


def _only_says_false(evidence: Evidence, outage: Outage) -> bool:
    """Whether a write for which the store returned `False` since the healing was seen."""
    return any(evidence.turn_invoked[turn] > outage.healed for turn in stored_and_false(evidence))


def describe(evidence: Evidence, detection: Detection) -> str:
    outage = evidence.outage
    assert outage is not None
    if outage.fault == UNDISTURBED:
        since = f"Nothing was broken, but from event {outage.healed} on none of the {outage.failed} writes in"
    else:
        healed = f"{outage.fault} was healed at event {outage.healed}"
        since = f"{healed}, and none of the {outage.failed} writes in the next"
    said = outage.error.rstrip(".")
    return f"{since} {outage.lasted_s:.1f} s succeeded; the last one (event {outage.last}) said: {said}."
