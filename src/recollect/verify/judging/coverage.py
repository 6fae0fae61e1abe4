"""What a history was able to show, and what it was not.

That an anomaly was not seen proves nothing where it could not have been seen. Each name is either covered, or
listed with the reason why this history says nothing about it; what the target itself disclaims is listed too.
"""

from __future__ import annotations

from recollect.printable import counted
from recollect.verify.judging.evidence import CLOCK_FAULTS, Evidence
from recollect.verify.judging.half_turns import INTERLEAVINGS

_DISCLAIMED: dict[str, str] = {
    "single_writer": "lost-update: the target claims a single writer only (single_writer)",
    "one_process": "lost-update: the target claims one process at a time only (one_process)",
    "no_batches": "torn-turn: the target does not claim atomic turns (no_batches)",
    "at_least_once": "duplicate: the target does not claim exactly-once for retried writes (at_least_once)",
    "ordered_by_clock": "reorder: the target orders by its clock, not by real time (ordered_by_clock)",
}

OF_ORDERS = frozenset({"raised", "hang"})
"""Judged in interleavings only, where every step is under control: under a fault, an error is no anomaly."""


def coverage(
    evidence: Evidence, names: tuple[str, ...], found: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names this history could have shown, including those it did, and sentences about everything else."""
    gaps = {name: gap for name, gap in _gaps(evidence).items() if name not in found}
    if evidence.header.workload == INTERLEAVINGS and evidence.has_batches:
        gaps.pop("torn-turn", None)  # where every step is chosen, half a turn needs no fault
    elif evidence.header.workload != INTERLEAVINGS:
        names = tuple(name for name in names if name not in OF_ORDERS)
    covered = tuple(name for name in names if name not in gaps)
    missing = [f"{name}: {gaps[name]}" for name in names if name in gaps]
    missing += [_DISCLAIMED[trait] for trait in evidence.header.traits]
    if evidence.unchecked:
        missing.append(f"{counted(evidence.unchecked, 'acknowledged message')} not read back at the end")
    if evidence.uncertain_forgets:
        missing.append(
            f"{counted(evidence.uncertain_forgets, 'forget')} ended unknown: what they may have taken is not judged"
        )
    if evidence.truncated:
        missing.append("the history is cut off: what came later is unknown")
    return covered, tuple(missing)


def _gaps(evidence: Evidence) -> dict[str, str]:
    gaps: dict[str, str] = {}
    crashed = [found for found in evidence.disturbances if found.name not in CLOCK_FAULTS]
    if not evidence.stops and not evidence.refusals:
        gaps["refuses-to-start"] = "the engine was never stopped"
    if not crashed:
        gaps |= dict.fromkeys(("torn-turn", "lost-tail", "hole"), "no fault was injected")
    elif not evidence.has_batches:
        gaps["torn-turn"] = "no turn had more than one message"
    if "count" not in evidence.operations:
        gaps["hidden"] = "the engine was never asked directly"
    if "context" not in evidence.operations:
        gaps["fractured-read"] = "no context read of several statements"
    if not evidence.operations & {"forget", "retract", "replace"}:
        gaps["resurrected"] = "nothing was forgotten"
    if "search" not in evidence.operations:
        gaps["index-divergence"] = "the index was never searched"
    if not evidence.retention:
        gaps["never-expired"] = "no message declared a retention"
        if not evidence.injected & CLOCK_FAULTS:
            gaps["expired-early"] = "no message declared a retention and the clock was never moved"
    if len(evidence.sessions) < 2:
        gaps["cross-session-leak"] = "there was only one session"
    if len(set(evidence.turn_process)) < 2:
        gaps["lost-update"] = "there was only one writer"
    return gaps
