"""After a bug that needs no fault is known: cells that are run so that it does not get in the way.

Where it takes two writers of one session, every writer gets sessions of its own. Where it takes a certain use of
memory, cells with that use would only show it again, and are left out with its number. Where one writer with plain
texts is enough, nothing can be avoided: the cells run as they are, and what they show of it counts as the same.
"""

from __future__ import annotations

import msgspec

from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.matrix.findings import NO_FAULT, Finding, is_alone
from recollect.verify.matrix.results import Results
from recollect.verify.matrix.selection import DEFAULT_WORKLOADS
from recollect.verify.running.faults.process import SEVERAL_CALLERS
from recollect.verify.running.scenario import Scenario

TOGETHER = frozenset({"older-writer", "newer-writer", "ttl-drift"})
"""Faults whose point is that two releases write to the same sessions."""


def avoiding(
    scenario: Scenario, found: tuple[Finding, ...], results: Results
) -> tuple[Scenario, Finding | None]:
    """The scenario, changed so that it avoids what is known; or the finding that hides it."""
    for finding in found:
        lead = results.results[finding.cells[0]]
        if finding.target != scenario.target or lead.scenario.fault not in NO_FAULT or is_alone(lead):
            continue
        workload = lead.scenario.workload
        if workload == scenario.workload and workload not in DEFAULT_WORKLOADS:
            return scenario, finding
        if finding.smallest.writers > 1:
            if scenario.fault in NO_FAULT:
                if lead.scenario.workload == INTERLEAVINGS and scenario.variant != SEVERAL_CALLERS:
                    continue  # tasks of one process: what several processes do is another question
                return scenario, finding
            if scenario.fault not in TOGETHER:
                scenario = msgspec.structs.replace(scenario, apart=True)
    return scenario, None
