"""Other versions: of the engine, and of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.verify.engines import Upgradable
from recollect.verify.running.faults.clock import CLOCK_FAULTS, leap_forward
from recollect.verify.running.faults.fault import Fault, give_witness, servers_only
from recollect.verify.running.faults.version_steps import NoStep, step
from recollect.verify.running.scenario import Scenario
from recollect.verify.target.target import BUILT_IN

if TYPE_CHECKING:
    from recollect.verify.running.run import Run

_OPTIONS = "--previous package.module:factory, or --previous-python PATH"


def _obstacle(scenario: Scenario) -> str | None:
    if (reason := servers_only(scenario)) is not None:
        return reason
    if (scenario.provider or "").startswith("compose:"):
        return "a compose service has the version that its file says"
    try:
        step(scenario)
    except NoStep as missing:
        return str(missing)
    return None


def _start_there(run: Run) -> None:
    run.engine_spec = f"{run.scenario.engine_name}@{step(run.scenario).start}"


def _upgrade(run: Run) -> None:
    assert isinstance(run.engine, Upgradable)
    engine, versions = run.engine, step(run.scenario)
    with run.striking("upgrade", str(versions)):
        run.stop_engine()
        run.start_engine(lambda: engine.upgrade(versions.goal))
        run.restart_clients()


def _downgrade(run: Run) -> None:
    assert isinstance(run.engine, Upgradable)
    engine, versions = run.engine, step(run.scenario)
    with run.striking("downgrade", str(versions)):
        run.stop_engine()
        run.start_engine(lambda: engine.downgrade(versions.goal))
        run.restart_clients()


def _other_release(scenario: Scenario) -> str | None:
    """The target that plays the other release: the user's, or, for our own, a simulated next one."""
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


def _both_releases(run: Run) -> None:
    """A rolling deploy: for a while both releases write and read the same sessions, then only this one."""
    other = _other_release(run.scenario)
    assert other is not None
    with run.striking(run.scenario.fault, other):
        run.start_other_writers(other, 2)
        run.go_on(run.scenario.before_s)
        run.restart_clients()


_FORWARD = next(fault for fault in CLOCK_FAULTS if fault.name == "clock-forward")


def _longer_lived(scenario: Scenario) -> str | None:
    """The release whose memory lives as long as it should: the user's last one, or ours with a week."""
    ours = scenario.target in BUILT_IN and scenario.target != "chroma"  # long-term memory has no expiry
    return _given(scenario) or (f"{BUILT_IN[scenario.target]}_week" if ours else None)


def _drift_obstacle(scenario: Scenario) -> str | None:
    if _longer_lived(scenario) is None:
        return f"needs the last release of your store: {_OPTIONS}"
    return _FORWARD.obstacle(scenario)


def _ttl_drift(run: Run) -> None:
    """The last release writes, this one goes on, and the time that memory must live passes."""
    other = _longer_lived(run.scenario)
    assert other is not None
    run.start_other_writers(other, 1)
    run.go_on(run.scenario.before_s / 2)
    run.restart_clients()
    run.go_on(run.scenario.before_s / 2)
    leap_forward(run, "ttl-drift")


VERSION_FAULTS = (
    Fault(
        "ttl-drift",
        _ttl_drift,
        verifies="a release that shortens the expiry does not cut short what the last one promised to keep",
        does_not_verify="expiries of other keys than those of the sessions that were written",
        obstacle=_drift_obstacle,
        arrange=_FORWARD.arrange,
    ),
    Fault(
        "upgrade",
        _upgrade,
        verifies="the engine's next version, reached as its documentation says, still has what was acknowledged",
        does_not_verify="upgrades that skip the documented way",
        obstacle=_obstacle,
        arrange=_start_there,
        attach=give_witness,
        named_variant="the version to go to, such as 8; --engine redis@7 says where it starts",
    ),
    Fault(
        "downgrade",
        _downgrade,
        verifies="going back to the older version on the same data keeps everything, or its loss is an error"
        " to the caller",
        does_not_verify="a restore from a backup made by the older version",
        obstacle=_obstacle,
        arrange=_start_there,
        attach=give_witness,
        named_variant="the version to go to, such as 6.2; --engine redis@7 says where it starts",
    ),
    Fault(
        "older-writer",
        _both_releases,
        verifies="what the last release writes during a rolling deploy is read by this one, and the other way round",
        does_not_verify="releases older than the one given",
        obstacle=_older_obstacle,
    ),
    Fault(
        "newer-writer",
        _both_releases,
        verifies="what a newer release writes (new fields, new roles) does not make this one lose or hide messages",
        does_not_verify="changes that the newer release has not made yet",
        obstacle=_release_obstacle,
    ),
)
