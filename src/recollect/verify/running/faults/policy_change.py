"""Another configuration on the same data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recollect.verify.engines import Endpoint, Reconfigurable
from recollect.verify.running.faults.fault import Fault, give_witness, ours_only
from recollect.verify.running.scenario import Scenario

if TYPE_CHECKING:
    from recollect.verify.running.run import Run

# What an operator changes it to, by the policy that is in place.
CHANGED_TO: dict[str, dict[str, str]] = {
    "redis": {"rdb": "aof-everysec", "none": "aof-everysec", "mixed": "aof-always", "aof-no": "aof-always",
              "aof-everysec": "aof-always", "aof-always": "aof-everysec"},
    "postgres": {"default": "async-commit", "async-commit": "default", "fsync-off": "default"},
    "sqlite": {"wal-full": "delete-extra", "wal-normal": "wal-full", "delete-full": "wal-full",
               "delete-extra": "wal-full"},
}  # fmt: skip


def _obstacle(scenario: Scenario) -> str | None:
    if scenario.policy not in CHANGED_TO.get(scenario.engine_kind, {}):
        return f"no other policy is known to change {scenario.policy} of {scenario.engine_kind} to"
    if scenario.variant and scenario.variant not in CHANGED_TO[scenario.engine_kind]:
        return f"{scenario.engine_kind} has no policy {scenario.variant!r} to change to"
    return ours_only(scenario)


def _policy_change(run: Run) -> None:
    other = run.scenario.variant or CHANGED_TO[run.scenario.engine_kind][run.scenario.policy]
    with run.striking("policy-change", f"{run.scenario.policy} to {other}"):
        run.stop_engine()
        run.start_engine(lambda: _changed(run, other))
        if not run.engine.embedded:
            run.restart_clients()


def _changed(run: Run, other: str) -> Endpoint:
    if run.engine.embedded:
        return replace(run.endpoint, policy=other)
    assert isinstance(run.engine, Reconfigurable)
    return run.engine.reconfigure(other)


CONFIG_FAULTS = (
    Fault(
        "policy-change",
        _policy_change,
        verifies="another persistence policy on the same data keeps what was acknowledged under the old one, or its"
        " loss is an error to the caller: a memory that comes back empty without a word is violated",
        does_not_verify="the safe procedure: this is the plain restart with the new setting that people do",
        obstacle=_obstacle,
        attach=give_witness,
        named_variant="the policy to change to",
    ),
)
