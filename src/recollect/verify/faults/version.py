"""Other versions: of the engine, and of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.verify import providers
from recollect.verify.engines import EngineError, Upgradable
from recollect.verify.faults.clock import CLOCK_FAULTS, leap_forward
from recollect.verify.faults.fault import Fault, servers_only
from recollect.verify.scenario import Scenario
from recollect.verify.targets import BUILT_IN

if TYPE_CHECKING:
    from recollect.verify.runner import Run

# From which version to which, in the order of preference; the first pair that this machine has is taken.
STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    "redis": (("6.2", "7"), ("7", "8")),
    "postgres": (("16", "18"), ("15", "16"), ("15", "18")),
}

_OPTIONS = "--previous package.module:factory, or --previous-python PATH"


def step(engine: str) -> tuple[str, str] | None:
    for older, newer in STEPS.get(engine, ()):
        if _present(f"{engine}@{older}") and _present(f"{engine}@{newer}"):
            return older, newer
    return None


def _present(spec: str) -> bool:
    try:
        providers.find(spec, None)
    except EngineError:
        return False
    return True


def _obstacle(scenario: Scenario) -> str | None:
    if (reason := servers_only(scenario)) is not None:
        return reason
    if scenario.engine_name not in STEPS:
        return f"no two versions of {scenario.engine_name} are known to step between"
    if step(scenario.engine_name) is None:
        wanted = " or ".join(f"{older} and {newer}" for older, newer in STEPS[scenario.engine_name])
        return f"needs two versions of {scenario.engine_name} ({wanted}): see `recollect engines`"
    return None


def _versions(run: Run) -> tuple[str, str]:
    pair = step(run.scenario.engine_name)
    assert pair is not None
    return pair


def _start_older(run: Run) -> None:
    run.engine_spec = f"{run.scenario.engine_name}@{_versions(run)[0]}"


def _start_newer(run: Run) -> None:
    run.engine_spec = f"{run.scenario.engine_name}@{_versions(run)[1]}"


def _upgrade(run: Run) -> None:
    assert isinstance(run.engine, Upgradable)
    engine, (older, newer) = run.engine, _versions(run)
    with run.striking("upgrade", f"{older} to {newer}"):
        run.stop_engine()
        run.start_engine(lambda: engine.upgrade(newer))
        run.restart_clients()


def _downgrade(run: Run) -> None:
    assert isinstance(run.engine, Upgradable)
    engine, (older, newer) = run.engine, _versions(run)
    with run.striking("downgrade", f"{newer} to {older}"):
        run.stop_engine()
        run.start_engine(lambda: engine.downgrade(older))
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
    return _given(scenario) or (f"{BUILT_IN[scenario.target]}_week" if scenario.target in BUILT_IN else None)


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
        arrange=_start_older,
    ),
    Fault(
        "downgrade",
        _downgrade,
        verifies="going back to the older version on the same data is refused loudly or keeps everything",
        does_not_verify="a restore from a backup made by the older version",
        obstacle=_obstacle,
        arrange=_start_newer,
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
