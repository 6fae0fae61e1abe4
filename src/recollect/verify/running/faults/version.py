"""Other versions: of the engine, and of the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from recollect.verify.engines import Endpoint, Upgradable
from recollect.verify.running.faults.clock import MovedClock, clock_obstacle
from recollect.verify.running.faults.fault import Fault, Injection, Witnessed, servers_only
from recollect.verify.running.faults.version_steps import NoStep, VersionStep, step
from recollect.verify.running.scenario import Scenario
from recollect.verify.target.registry import BUILT_IN

_OPTIONS = "--previous package.module:factory, or --previous-python PATH"


def _obstacle(scenario: Scenario) -> str | None:
    if (reason := servers_only(scenario)) is not None:
        return reason
    try:
        step(scenario)
    except NoStep as missing:
        return str(missing)
    return None


class _VersionChange(Witnessed):
    """The engine starts with one version, and goes on with another."""

    versions: VersionStep

    def arrange(self) -> None:
        self.versions = step(self.run.scenario)
        self.run.use_engine(f"{self.run.scenario.engine_name}@{self.versions.start}")

    def change(self, name: str, start: Callable[[Upgradable, str], Endpoint]) -> None:
        run, engine = self.run, self.run.engine
        assert isinstance(engine, Upgradable)
        with run.striking(name, str(self.versions)):
            run.stop_engine()
            run.start_engine(lambda: start(engine, self.versions.goal))
            run.restart_clients()


class Upgrade(_VersionChange):
    """Where nobody has named a version, it may begin with one that the store was never meant for."""

    def unopened(self, why: str) -> None:
        if "@" not in self.run.scenario.engine and not self.run.scenario.variant:
            self._unsuited(why)

    def _unsuited(self, why: str) -> NoReturn:
        start = f"{self.run.scenario.engine_name} {self.versions.start}"
        self.run.skip(f"it begins with {start}, on which the store does not work: {why}")

    def strike(self) -> None:
        if not self.run.written:
            self._unsuited("no write succeeded")
        self.change("upgrade", lambda engine, version: engine.upgrade(version))


class Downgrade(_VersionChange):
    def strike(self) -> None:
        self.change("downgrade", lambda engine, version: engine.downgrade(version))


def _other_release(scenario: Scenario) -> str | None:
    """The target that serves as the other release: the user's, or, for our own stores, a simulated next one."""
    return _given(scenario) or (f"{BUILT_IN[scenario.target]}_next" if scenario.target in BUILT_IN else None)


def _given(scenario: Scenario) -> str | None:
    """The user's other release: named, or the same name under the interpreter that has it installed."""
    return scenario.previous or (scenario.target if scenario.previous_python is not None else None)


def _release_obstacle(scenario: Scenario) -> str | None:
    if _other_release(scenario) is None:
        return f"needs the other release of your store: {_OPTIONS}"
    return None


def _older_obstacle(scenario: Scenario) -> str | None:
    if _given(scenario) is None and scenario.target in BUILT_IN:
        return "recollect has no earlier release yet"
    return _release_obstacle(scenario)


class BothReleases(Injection):
    """A rolling deploy: for a while both releases write and read the same sessions, then only this one."""

    def strike(self) -> None:
        run, other = self.run, _other_release(self.run.scenario)
        assert other is not None
        with run.striking(run.scenario.fault, other):
            run.clients.start_others(other, 2)
            run.go_on(run.scenario.before_s)
            run.restart_clients()


def _longer_lived(scenario: Scenario) -> str | None:
    """The release whose memory lives as long as it should: the user's previous one, or ours with a week."""
    ours = scenario.target in BUILT_IN and scenario.target != "chroma"  # long-term memory has no expiry
    return _given(scenario) or (f"{BUILT_IN[scenario.target]}_week" if ours else None)


def _drift_obstacle(scenario: Scenario) -> str | None:
    if _longer_lived(scenario) is None:
        return f"needs the other release of your store: {_OPTIONS}"
    return clock_obstacle(scenario)


class TtlDrift(MovedClock):
    """The previous release writes, this one goes on, and the time that memory must live passes."""

    def strike(self) -> None:
        run, other = self.run, _longer_lived(self.run.scenario)
        assert other is not None
        run.clients.start_others(other, 1)
        run.go_on(run.scenario.before_s / 2)
        run.restart_clients()
        run.go_on(run.scenario.before_s / 2)
        self.leap_forward("ttl-drift")


VERSION_FAULTS = (
    Fault(
        "ttl-drift",
        TtlDrift,
        verifies="a release that shortens the expiry does not cut short what the previous one promised to keep",
        does_not_verify="the expiry of keys other than those of the sessions that were written",
        obstacle=_drift_obstacle,
    ),
    Fault(
        "upgrade",
        Upgrade,
        verifies="the engine's next version, reached as its documentation says, still has what was acknowledged",
        does_not_verify="upgrades that do not follow the documentation",
        obstacle=_obstacle,
        named_variant="the version to go to, such as 8; --engine redis@7 says where it starts",
    ),
    Fault(
        "downgrade",
        Downgrade,
        verifies="going back to the older version on the same data keeps everything, or its loss is an error"
        " to the caller",
        does_not_verify="a restore from a backup made by the older version",
        obstacle=_obstacle,
        named_variant="the version to go to, such as 6.2; --engine redis@7 says where it starts",
    ),
    Fault(
        "older-writer",
        BothReleases,
        verifies="what the previous release writes during a rolling deploy is read by this one, and vice versa",
        does_not_verify="releases older than the one given",
        obstacle=_older_obstacle,
    ),
    Fault(
        "newer-writer",
        BothReleases,
        verifies="what a newer release writes (new fields, new roles) does not make this one lose or hide messages",
        does_not_verify="changes that the newer release has not made yet",
        obstacle=_release_obstacle,
    ),
)
