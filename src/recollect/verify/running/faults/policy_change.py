"""Another configuration on the same data."""

from __future__ import annotations

from dataclasses import replace

from recollect.verify.engines import Endpoint, Reconfigurable
from recollect.verify.engines.sqlite import POLICIES as SQLITE_POLICIES
from recollect.verify.running.faults.fault import Fault, Witnessed, ours_only
from recollect.verify.running.scenario import Scenario

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


class PolicyChange(Witnessed):
    def strike(self) -> None:
        run, policy = self.run, self.run.scenario.policy
        other = run.scenario.variant or CHANGED_TO[run.scenario.engine_kind][policy]
        with run.striking("policy-change", f"{policy} to {other}"):
            run.stop_engine()
            run.start_engine(lambda: self._changed(other))
            if not run.engine.embedded:
                run.restart_clients()

    def _changed(self, other: str) -> Endpoint:
        if self.run.engine.embedded:
            return replace(self.run.endpoint, policy=other, settings=SQLITE_POLICIES[other].settings)
        assert isinstance(self.run.engine, Reconfigurable)
        return self.run.engine.reconfigure(other)


CONFIG_FAULTS = (
    Fault(
        "policy-change",
        PolicyChange,
        verifies="another persistence policy on the same data keeps what was acknowledged under the old one, or its"
        " loss is an error to the caller: a memory that silently comes back empty is violated",
        does_not_verify="the safe procedure: this is what people do, a plain restart with the new setting",
        obstacle=_obstacle,
        named_variant="the policy to change to",
    ),
)
