"""The symbols and words for verdicts and findings, shared by all reports."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from recollect.printable import counted
from recollect.verify.judging.detection import SEVERAL_CALLERS
from recollect.verify.judging.half_turns import INTERLEAVINGS, THEN
from recollect.verify.judging.steps import EVERYONE
from recollect.verify.judging.verdict import Status, Verdict
from recollect.verify.matrix.findings import Finding
from recollect.verify.matrix.results import BUDGET, Compared, Result
from recollect.verify.running.scenario import Scenario
from recollect.verify.running.workloads import WORKLOADS

STYLES: dict[Status, tuple[str, str]] = {
    "held": ("✓", "green"),
    "documented-loss": ("◐", "yellow"),
    "exposed": ("◌", "yellow"),
    "violated": ("✗", "bold red"),
    "unknown": ("?", "magenta"),
    "skipped": ("·", "dim"),
}


def lost_of(verdicts: Sequence[Verdict]) -> str:
    """The figures of a table's cell. A documented loss without a lost message says what it was instead."""
    acked, lost = sum(verdict.acked for verdict in verdicts), sum(verdict.lost for verdict in verdicts)
    if lost:
        return f"{lost:,}/{acked:,}"
    if any(verdict.status == "documented-loss" for verdict in verdicts):
        names = dict.fromkeys(anomaly.name for verdict in verdicts for anomaly in verdict.anomalies)
        return " ".join((f"0/{acked:,}", *names))
    return f"{acked:,}"


def why_left_out(reason: str) -> str:
    """Why cells were skipped, with what would run them."""
    return f"{reason} (there was no time left: a larger --budget runs them)" if reason == BUDGET else reason


def figure(result: Result) -> str:
    """A cell's outcome in a few words."""
    verdict = result.verdict
    if verdict.status in ("skipped", "unknown"):
        return verdict.reason or ""
    return orders_tried(result) or verdict.account


def orders_tried(result: Result) -> str:
    """Shown in place of the message counts where orders of events were tried and everything held."""
    tried = result.scenario.workload == INTERLEAVINGS and result.verdict.status == "held"
    return result.notes[0] if tried and result.notes else ""


def client_of(finding: Finding, process: int) -> str:
    """The heading of a client's column. If the finding is an order of events, clients are called A, B and so on."""
    if finding.smallest.workload != INTERLEAVINGS:
        shares = finding.smallest.variant == SEVERAL_CALLERS and process < finding.smallest.writers
        return f"{'caller' if shares else 'process'} {process}"
    if process >= len(ascii_uppercase):
        return "outside"  # whoever wrote before the clients began, or read when all had ended
    return f"{_kind_of(finding.smallest)} {ascii_uppercase[process]}"


def _kind_of(order: Scenario) -> str:
    """What the clients of an order of events are. A history alone does not say it."""
    return order.how.removesuffix("s") or "client"


def size_of(finding: Finding) -> str:
    """How large the smallest run is, and whether it could be made smaller."""
    size = finding.smallest
    if size.workload == INTERLEAVINGS:
        clients = size.program.rpartition(THEN)[2].count("|") + 1
        told = f"{counted(clients, _kind_of(size))} of one process: {size.program}"
        return f"{told}; {finding.shrunk}" if finding.shrunk else told
    if size.ops_max is None or size.workload not in WORKLOADS:  # older data is as large as it was given
        return finding.shrunk or "not made smaller"
    where = "" if WORKLOADS[size.workload].sessions else f", {counted(size.sessions, 'session')}"
    processes = {step.process for step in finding.steps if step.process != EVERYONE}
    restarted = len(processes) > size.writers + max(1, size.readers)
    each = " each" if size.writers > 1 or restarted else ""
    kind = "caller" if size.variant == SEVERAL_CALLERS else "writer"
    writers = counted(size.writers, kind) + " at a time" * restarted
    text = f"{writers}{where}, {counted(size.ops_max, 'operation')}{each}"
    return f"{text}; {finding.shrunk}" if finding.shrunk else text


def against(baseline: Compared) -> str:
    """What is new, still there and fixed, in words."""
    parts = [
        f"{len(baseline.new)} new",
        f"{len(baseline.still)} still there",
        f"{len(baseline.fixed)} fixed" + (f" ({', '.join(baseline.fixed)})" if baseline.fixed else ""),
    ]
    if baseline.not_run:
        parts.append(f"{len(baseline.not_run)} not looked at this time ({', '.join(baseline.not_run)})")
    return ", ".join(parts)
