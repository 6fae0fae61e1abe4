"""Skips a policy that the store's own connections override: if they make two policies the same, one run is enough."""

from __future__ import annotations

from collections.abc import Iterable

from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.matrix.results import Result
from recollect.verify.running.scenario import Scenario

CHANGES_POLICY = frozenset({"policy-change"})


def ran_before(scenario: Scenario, results: Iterable[Result]) -> str | None:
    """Why this cell would only repeat another that has ended; None if it would not, or it is not known yet."""
    if scenario.fault in CHANGES_POLICY:
        return None
    ran = [
        result
        for result in results
        if result.verdict.status not in ("skipped", "unknown")
        and result.scenario.workload
        != INTERLEAVINGS  # which does not look at the settings of the store's connections
    ]
    real = next((_real(each) for each in ran if _store(each.scenario) == _store(scenario)), None)
    if real is None:
        return None
    for each in ran:
        other = each.scenario
        if other.policy != scenario.policy and _cell(other) == _cell(scenario) and _real(each) == real:
            return f"the same as {other.policy}: under both policies the store's own connections are {real}"
    return None


def _real(result: Result) -> str:
    return result.real_policy or result.scenario.policy


def _store(scenario: Scenario) -> tuple[str, str, str]:
    return (scenario.target, scenario.engine, scenario.policy)


def _cell(scenario: Scenario) -> tuple[str, ...]:
    return (scenario.target, scenario.engine, scenario.fault, scenario.variant, scenario.workload)
