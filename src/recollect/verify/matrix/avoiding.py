"""Once a bug that needs no fault is known, later cells are run so that it does not get in the way.

If the bug needs two writers in one session, every writer gets sessions of its own. If it needs a certain use of
memory, cells with that use would only show it again; they are skipped and name the finding. If one writer with plain
texts is enough, nothing can be avoided: the cells run unchanged, and what they show of the bug counts as the same one.
"""

from __future__ import annotations

import msgspec

from recollect.verify.judging.detection import SEVERAL_CALLERS
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.matrix.findings import NO_FAULT, Finding, is_alone
from recollect.verify.matrix.results import Results
from recollect.verify.matrix.selection import DEFAULT_WORKLOADS
from recollect.verify.running.scenario import Scenario

TOGETHER = frozenset({"older-writer", "newer-writer", "ttl-drift"})
"""Faults whose point is that two releases write to the same sessions."""


def avoiding(
    scenario: Scenario, found: tuple[Finding, ...], results: Results
) -> tuple[Scenario, Finding | None]:
    """The scenario, changed so that it avoids known bugs; or the finding that hides it."""
    for finding in found:
        lead = results.results[finding.cells[0]]
        if finding.target != scenario.target or lead.scenario.fault not in NO_FAULT or is_alone(lead):
            continue
        workload = lead.scenario.workload
        if workload == scenario.workload and workload not in DEFAULT_WORKLOADS:
            return scenario, finding
        if finding.smallest.writers > 1:
            if scenario.fault in NO_FAULT or _share_a_store(scenario, lead.scenario):
                if lead.scenario.workload == INTERLEAVINGS and scenario.variant != SEVERAL_CALLERS:
                    continue  # found with tasks of one process; several processes are another question
                return scenario, finding
            if scenario.fault not in TOGETHER:
                scenario = msgspec.structs.replace(scenario, apart=True)
    return scenario, None


def _share_a_store(scenario: Scenario, shown: Scenario) -> bool:
    """Whether writers get in each other's way inside one process, where sessions of their own do not help."""
    inside = shown.workload == INTERLEAVINGS or shown.variant == SEVERAL_CALLERS
    return inside and scenario.variant == SEVERAL_CALLERS
