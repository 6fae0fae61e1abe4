"""The two versions of an engine that `upgrade` and `downgrade` step between.

The version in ``--engine redis@7`` is the one that the user runs: the step begins there, and goes to the nearest
installed one in its direction, or to the one that ``--variant 8`` names. Without a version, the first pair of `PAIRS`
that this machine has is taken; of Chroma, the installed release and the one before it. A compose service starts at the
version of the image in its file, and goes to another image on this machine.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from recollect.verify import providers
from recollect.verify.host.errors import EngineError
from recollect.verify.providers import compose, docker
from recollect.verify.providers.build import Build
from recollect.verify.running.scenario import Scenario

# Older and newer version, in order of preference.
PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "redis": (("6.2", "7"), ("7", "8")),
    "postgres": (("16", "18"), ("15", "16"), ("15", "18")),
}


class VersionStep(NamedTuple):
    """Versions as they can be asked for: ``redis@7.0.15``."""

    start: str
    goal: str

    def __str__(self) -> str:
        return f"{self.start} to {self.goal}"


class NoStep(Exception):
    """There are no two versions to step between; the message says which one is missing."""


def step(scenario: Scenario) -> VersionStep:
    """Where the engine of this scenario starts, and where it goes."""
    up = scenario.fault == "upgrade"
    _, _, start = scenario.engine.partition("@")
    try:
        if start or _is_service(scenario):
            first = _of_service(scenario) if _is_service(scenario) else _find(scenario, start)
            goal = _find(scenario, scenario.variant) if scenario.variant else _nearest(scenario, first, up)
            return _checked(first, goal, up)
        if scenario.variant:
            goal = _find(scenario, scenario.variant)
            return _checked(_nearest(scenario, goal, not up), goal, up)
    except EngineError as missing:
        raise NoStep(str(missing)) from missing
    return _known(scenario, up)


def _find(scenario: Scenario, version: str) -> Build:
    return providers.find(f"{scenario.engine_name}@{version}", _provider(scenario))


def _provider(scenario: Scenario) -> str | None:
    name = (scenario.provider or "").partition(":")[0] or None
    return docker.NAME if name == compose.NAME else name


def _is_service(scenario: Scenario) -> bool:
    return (scenario.provider or "").startswith(f"{compose.NAME}:")


def _of_service(scenario: Scenario) -> Build:
    """The build that a compose file names."""
    file, service, _ = compose.place_of((scenario.provider or "").partition(":")[2])
    image = compose.image_of(str(file), service)
    for build in providers.found(scenario.engine_kind, docker.NAME):
        if build.location == (image if ":" in image else f"{image}:latest"):
            return build
    raise NoStep(f"the version of the image {image} of {service!r} in {file} is not known")


def _checked(start: Build, goal: Build, up: bool) -> VersionStep:
    if not (_number(goal) > _number(start) if up else _number(goal) < _number(start)):
        kind, wanted = ("an upgrade", "newer") if up else ("a downgrade", "older")
        raise NoStep(
            f"{kind} needs a version that is {wanted}: {goal.version} is not {wanted} than {start.version}"
        )
    return VersionStep(start.version, goal.version)


def _nearest(scenario: Scenario, build: Build, up: bool) -> Build:
    """The next installed release in one direction."""
    others = [
        other
        for other in providers.found(build.engine, _provider(scenario))
        if other.product == build.product and _number(other) != _number(build)
        if (_number(other) > _number(build)) is up
    ]
    if not others:
        raise NoStep(
            f"needs {'a newer' if up else 'an older'} {build.product} than {build.version}: see `recollect engines`"
        )
    return min(others, key=_number) if up else max(others, key=_number)


def _number(build: Build) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", build.version))


def _known(scenario: Scenario, up: bool) -> VersionStep:
    if scenario.engine_name == "chroma":
        return _beside_installed(scenario, up)
    pairs = PAIRS.get(scenario.engine_name, ())
    for older, newer in pairs:
        if _present(scenario, older) and _present(scenario, newer):
            return VersionStep(older, newer) if up else VersionStep(newer, older)
    if not pairs:
        raise NoStep(f"no two versions of {scenario.engine_name} are known to step between: name one with @")
    wanted = " or ".join(f"{older} and {newer}" for older, newer in pairs)
    raise NoStep(f"needs two versions of {scenario.engine_name} ({wanted}): see `recollect engines`")


def _beside_installed(scenario: Scenario, up: bool) -> VersionStep:
    """Between the installed release and the one before it."""
    installed = providers.find("chroma", _provider(scenario))
    older = _nearest(scenario, installed, up=False)
    return _checked(older, installed, up) if up else _checked(installed, older, up)


def _present(scenario: Scenario, version: str) -> bool:
    try:
        _find(scenario, version)
    except EngineError:
        return False
    return True
