"""From words to an engine: `create("redis@7", policy="aof-always")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from recollect.verify import providers
from recollect.verify.engines.chroma import ChromaEngine
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.options import Options
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.engines.protocols import Engine, Policy
from recollect.verify.engines.redis import RedisEngine
from recollect.verify.engines.sqlite import SqliteEngine

ENGINES: Mapping[str, type[LocalServer]] = {
    "redis": RedisEngine,
    "postgres": PostgresEngine,
    "sqlite": SqliteEngine,
    "chroma": ChromaEngine,
}
"""Every engine by name. To add one: a module beside these, and a line here."""


def create(
    spec: str,
    policy: str | None = None,
    *,
    provider: str | None = None,
    root: Path | None = None,
    config: Path | None = None,
    options: Options | None = None,
) -> Engine:
    """An engine, not started yet.

    `spec` is a name with an optional version: `redis`, `redis@6.2`, `valkey`, `postgres@18`, `sqlite`,
    `chroma`. `options` holds the rest (data folder, port, environment, deadlines); the arguments here win
    over it.
    """
    options = options or Options()
    chosen = replace(
        options, policy=policy or options.policy, root=root or options.root, config=config or options.config
    )
    build = providers.find(spec, provider)
    return ENGINES[build.engine](build, chosen)


def policies(engine: str) -> Mapping[str, Policy]:
    """The named policies of an engine, as data."""
    name, _, _ = providers.parse(engine)
    return ENGINES[name].policies
