"""Another configuration on the same data."""

from __future__ import annotations

from dataclasses import replace

from recollect.verify.engines import Endpoint, Engine, Reconfigurable, policies
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


IN_A_FILE = {"redis": "aof-always", "postgres": "async-commit"}
"""What the settings of a compose file are changed to if they are none of the named policies."""


def _in_a_file(scenario: Scenario) -> bool:
    """Whether the policy is what a compose file says: the running service tells which one that is."""
    return (scenario.provider or "").startswith("compose:") and scenario.engine_kind in IN_A_FILE


def _policy_of(engine: Engine) -> str:
    """The named policy that the running engine's settings are; `custom` if they are none."""
    told = engine.settings()
    for name, policy in policies(engine.name).items():
        if policy.read_back.items() <= told.items():
            return name
    return "custom"


def _obstacle(scenario: Scenario) -> str | None:
    if _in_a_file(scenario) and scenario.variant in ("", *CHANGED_TO[scenario.engine_kind]):
        return None
    if scenario.policy not in CHANGED_TO.get(scenario.engine_kind, {}):
        return f"no other policy is known to change {scenario.policy} of {scenario.engine_kind} to"
    if scenario.variant and scenario.variant not in CHANGED_TO[scenario.engine_kind]:
        return f"{scenario.engine_kind} has no policy {scenario.variant!r} to change to"
    return ours_only(scenario)


class PolicyChange(Witnessed):
    def strike(self) -> None:
        run, kind = self.run, self.run.scenario.engine_kind
        policy = _policy_of(run.engine) if _in_a_file(run.scenario) else run.scenario.policy
        other = run.scenario.variant or CHANGED_TO[kind].get(policy) or IN_A_FILE[kind]
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
