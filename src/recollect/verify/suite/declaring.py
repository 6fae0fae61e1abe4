"""From a test class to a `Suite`: what it declares, what its marker adds, what the command line overrides.

Only the class's attributes are used, so this works with any test framework. Its factory is named by module and class,
because the clients of a run import it in processes of their own.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.guarantees import MADE_OF
from recollect.secret import SecretUrl
from recollect.verify.durations import seconds
from recollect.verify.engines import ENGINES, EngineError
from recollect.verify.matrix.results import refused_requirement
from recollect.verify.matrix.selection import BadRequest, VerifyRequest, check
from recollect.verify.providers import url as addresses
from recollect.verify.running.faults import FAULTS
from recollect.verify.running.scenario import KINDS
from recollect.verify.suite.suite import Suite
from recollect.verify.target.module_folders import from_here, home_of, own_folders
from recollect.verify.target.registry import BUILT_IN

WISHES = (
    "engine",
    "policy",
    "fault",
    "variant",
    "workload",
    "engine_config",
    "retain",
    "require",
    "strict",
    "writers",
    "full",
)
"""What a class may set as an attribute and a marker as an argument."""


@dataclass(frozen=True)
class Chosen:
    """What the command line and the environment say, for every suite and fixture of a session."""

    engines: tuple[str, ...] = ()
    provider: str | None = None
    urls: Mapping[str, SecretUrl] = field(default_factory=dict)
    """By engine."""
    faults: tuple[str, ...] = ()
    seed: int = 0

    def engine(self, wanted: str | None) -> str:
        """The engine and the version to run; the first one if there are several."""
        return self.all_engines(wanted)[0]

    def all_engines(self, wanted: str | None) -> tuple[str, ...]:
        """The same, with every version that was asked for."""
        if wanted is None:
            if not self.engines:
                raise BadRequest(
                    f"say which engine: engine = 'redis', or {', '.join(ENGINES)} (redis@7: a version)"
                )
            return tuple(dict.fromkeys(self.engines))
        same = [engine for engine in self.engines if family(engine) == family(wanted)]
        return tuple(dict.fromkeys(same)) or (wanted,)

    def url(self, engine: str) -> SecretUrl | None:
        """Of that engine or, if there is none, of a group of such servers."""
        names = [family(engine), *(group for group, server in MADE_OF.items() if server == family(engine))]
        return next((self.urls[name] for name in names if name in self.urls), None)


def family(engine: str) -> str:
    """``valkey@9`` counts as Redis."""
    name = engine.partition("@")[0]
    return KINDS.get(name, name)


def urls_by_engine(urls: Sequence[str]) -> dict[str, SecretUrl]:
    return {addresses.engine_of(url): SecretUrl(url) for url in urls}


def wishes(declared: Mapping[str, Any], marked: Mapping[str, Any]) -> dict[str, Any]:
    """Both together; the marker wins."""
    if unknown := set(marked) - set(WISHES):
        raise BadRequest(f"the marker has no {', '.join(sorted(unknown))}; it has {', '.join(WISHES)}")
    return {**declared, **marked}


def declare(cls: type, marked: Mapping[str, Any], chosen: Chosen) -> list[Suite]:
    """The suites of a test class, one for each engine; raises `BadRequest` that says what it lacks."""
    wanted = wishes({name: getattr(cls, name, None) for name in WISHES}, marked)
    target = _spec(cls, "factory")
    engines = chosen.all_engines(wanted["engine"] or (target if target in BUILT_IN else None))
    name = f"{cls.__module__}.{cls.__qualname__}"
    return [
        _declared(cls, wanted, chosen, engine, name if len(engines) == 1 else f"{name}.{engine}")
        for engine in engines
    ]


def _declared(cls: type, wanted: Mapping[str, Any], chosen: Chosen, engine: str, name: str) -> Suite:
    target = _spec(cls, "factory")
    previous = None if getattr(cls, "previous", None) is None else _spec(cls, "previous")
    if (wrong := refused_requirement(wanted["require"])) is not None:
        raise BadRequest(f"require = {wrong}")
    url = chosen.url(engine)
    request = VerifyRequest(
        targets=(target,),
        engine=engine,
        provider=None if url else chosen.provider,
        url=url,
        engine_config=_beside(cls, wanted["engine_config"]),
        # An engine that somebody else runs has its own settings, whatever the class was written for.
        policies=() if url or (chosen.provider or "").startswith("compose:") else _several(wanted["policy"]),
        faults=tuple(FAULTS) if chosen.faults == ("all",) else chosen.faults or _several(wanted["fault"]),
        variants=_several(wanted["variant"]),
        workloads=_several(wanted["workload"]),
        previous=previous,
        retain_s=None if wanted["retain"] is None else seconds(wanted["retain"]),
        path=_path(cls),
        full=bool(wanted["full"]),
        writers=wanted["writers"],
        seed=chosen.seed,
    )
    check(request)
    return Suite(name, target, request, wanted["require"], bool(wanted["strict"]))


def _spec(cls: type, attribute: str) -> str:
    """The name under which the clients of a run find a factory."""
    found = getattr(cls, attribute, None)
    if isinstance(found, str):
        return found
    if not callable(found):
        raise BadRequest(
            f"has no {attribute}: add a static method {attribute}(endpoint) that returns your store, "
            f"or {attribute} = 'package.module:{attribute}'"
        )
    raw = inspect.getattr_static(cls, attribute)
    if inspect.isfunction(raw) and next(iter(inspect.signature(raw).parameters), "") == "self":
        raise BadRequest(
            f"{attribute} takes self, but the store is made in another process: add @staticmethod"
        )
    if "<locals>" in cls.__qualname__:
        raise BadRequest(f"is defined inside a function: other processes cannot import its {attribute}")
    return f"{_home(cls)[1]}:{cls.__qualname__}.{attribute}"


def _home(cls: type) -> tuple[str, str]:
    return home_of(_file(cls))


def _file(cls: type) -> Path:
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is None:
        raise BadRequest(f"its module {cls.__module__!r} has no file that other processes could import")
    return Path(file)


def _path(cls: type) -> tuple[str, ...]:
    """Its own folder first, then whatever the session has put on the path, as conftest files do."""
    return tuple(dict.fromkeys(from_here(folder) for folder in (_home(cls)[0], *own_folders())))


def _beside(cls: type, config: str | None) -> str | None:
    if config is None:
        return None
    found = _file(cls).parent / config
    if not found.exists():
        raise BadRequest(f"engine_config = {config!r}: there is no {found}")
    return str(found)


def _several(value: str | Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


__all__ = ["BadRequest", "Chosen", "EngineError", "declare", "family", "urls_by_engine", "wishes"]
