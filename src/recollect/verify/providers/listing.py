"""Everything that the providers have and lack: the data behind `recollect engines`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from recollect.verify import providers
from recollect.verify.host.errors import EngineError
from recollect.verify.providers import compose, patroni, url
from recollect.verify.providers.build import Build, Gap

ENGINES = ("redis", "postgres", "sqlite", "chroma")


@dataclass(frozen=True)
class Listing:
    found: list[Build]
    missing: list[Gap]


def everything() -> Listing:
    found: list[Build] = []
    missing: list[Gap] = []
    for engine in ENGINES:
        have = list(providers.found(engine))
        found += [*_addresses(engine), *have]
        missing += providers.gaps(engine, have)
    found += patroni.builds()
    missing += [*patroni.gaps(), *_compose_gap()]
    return Listing(found, missing)


def _addresses(engine: str) -> list[Build]:
    """Addresses that the user has set in the environment. The listing shows them and never connects to them."""
    return [
        Build(engine, "as configured", "?", url.NAME, url.without_credentials(os.environ[variable]))
        for variable in url.VARIABLES.values()
        if variable in os.environ and url.engine_of(os.environ[variable]) == engine
    ]


def _compose_gap() -> list[Gap]:
    try:
        compose.command()
    except EngineError:
        return [Gap("any", "", compose.NAME, "no docker compose command", "apt-get install docker-compose")]
    return []
