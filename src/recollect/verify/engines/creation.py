"""From a name to an engine: `create("redis@7", policy="aof-always")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.verify import providers
from recollect.verify.engines import chroma, postgres, redis
from recollect.verify.engines.compose import ComposeEngine
from recollect.verify.engines.container import ContainerEngine
from recollect.verify.engines.group import ServerGroup
from recollect.verify.engines.handed import HandedEngine
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.patroni import PatroniEngine
from recollect.verify.engines.postgres_ha import PostgresHaEngine
from recollect.verify.engines.protocols import Engine, Policy
from recollect.verify.engines.recipe import Recipe
from recollect.verify.engines.redis_cluster import RedisClusterEngine
from recollect.verify.engines.redis_sentinel import RedisSentinelEngine
from recollect.verify.engines.sqlite import SqliteEngine
from recollect.verify.host.errors import NotOurs, UnknownName
from recollect.verify.providers import compose, docker
from recollect.verify.providers.handed import HandedContainer

ENGINES: Mapping[str, type[LocalServer] | type[ServerGroup[Any]]] = {
    "redis": redis.RedisEngine,
    "postgres": postgres.PostgresEngine,
    "sqlite": SqliteEngine,
    "chroma": chroma.ChromaEngine,
    "redis-cluster": RedisClusterEngine,
    "redis-sentinel": RedisSentinelEngine,
    "postgres-ha": PostgresHaEngine,
    "patroni": PatroniEngine,
}
"""Every engine by name. To add one, write a module beside these and add a line here."""


CONTAINER_RECIPES: Mapping[str, Recipe] = {
    recipe.engine: recipe for recipe in (redis.RECIPE, postgres.RECIPE, chroma.RECIPE)
}
"""The engines that also run in containers."""


def create(
    spec: str,
    policy: str | None = None,
    *,
    provider: str | None = None,
    root: Path | None = None,
    config: Path | None = None,
    options: EngineOptions | None = None,
) -> Engine:
    """An engine, not started yet.

    `spec` is a name with an optional version: `redis`, `redis@6.2`, `valkey`, `postgres@18`, `sqlite`,
    `chroma`. `provider` is `system`, `wheel`, `docker`, `docker:STORAGE` (named, anonymous, tmpfs) or
    `compose:FILE#SERVICE`; None means the first that has it. `options` holds the rest (data folder, port,
    environment, deadlines); the arguments here override it.
    """
    options = options or EngineOptions()
    chosen = replace(
        options, policy=policy or options.policy, root=root or options.root, config=config or options.config
    )
    name, _, detail = (provider or "").partition(":")
    if name == compose.NAME:
        return _service(spec, detail, chosen)
    if "://" in (provider or ""):
        raise NotOurs(f"{spec} at an address is used, never broken: engines.attach(url) instead of create()")
    build = providers.find(spec, name or None)
    if build.provider == docker.NAME:
        return ContainerEngine(CONTAINER_RECIPES[build.engine], build, chosen, detail or "named")
    return ENGINES[providers.parse(spec)[0]](build, chosen)


def _service(spec: str, service: str, options: EngineOptions) -> Engine:
    engine, _, _ = providers.parse(spec)
    if engine not in CONTAINER_RECIPES:
        raise UnknownName("engine for compose", engine, CONTAINER_RECIPES)
    return ComposeEngine(CONTAINER_RECIPES[engine], service, options, CONTAINER_RECIPES)


def hand_over(container: Any) -> Engine:
    """The engine in a container that somebody else has started, to be broken and never removed; see `HandedEngine`."""
    given = HandedContainer(container)
    engine, _, _ = providers.parse(docker.spec_name(given.image))
    return HandedEngine(CONTAINER_RECIPES[engine], given)


def policies_in_containers(engine: str) -> tuple[str, ...]:
    """The names of those that a container can have."""
    name, _, _ = providers.parse(engine)
    return tuple(CONTAINER_RECIPES[name].policies) if name in CONTAINER_RECIPES else ()


def policies(engine: str) -> Mapping[str, Policy]:
    """The named policies of an engine, as data."""
    name, _, _ = providers.parse(engine)
    return ENGINES[name].policies
