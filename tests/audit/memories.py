"""Memories to be audited, each in a namespace of its own on a real engine; and hands that damage them."""

import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import redis

from recollect import Message, Store
from recollect.audit import AuditReport, audit
from recollect.verify.engines import Engine

STORES = ("sqlite", "redis", "postgres")


@dataclass
class Memory:
    kind: str
    engine: Engine
    url: str
    namespace: str

    async def audit(self, **options: Any) -> AuditReport:
        return await audit(self.url, rate=None, **options)

    async def names(self, **options: Any) -> list[str]:
        """What is found; without what the engine's own clock and sweeping are about."""
        report = await self.audit(**options)
        return sorted({finding.name for finding in report.findings if finding.level == "damage"})

    # ---- hands

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def sqlite(self, statement: str, *arguments: object) -> None:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute(statement, arguments)
        connection.close()

    async def postgres(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    def redis(self) -> Any:
        assert self.engine.endpoint.socket_url is not None
        return redis.Redis.from_url(self.engine.endpoint.socket_url)

    def key(self, session: str, kind: str) -> str:
        return f"{self.namespace}:{{s{session}}}:{kind}"


async def memory_of(kind: str, engine_of: Callable[[str], Engine], folder: Path) -> Memory:
    namespace = f"a{uuid.uuid4().hex}"
    engine = engine_of(kind)
    if kind == "sqlite":
        return Memory(kind, engine, f"sqlite:///{folder}/{namespace}.db", namespace)
    url = engine.endpoint.socket_url
    assert url is not None
    if kind == "redis":
        return Memory(kind, engine, f"{url}&prefix={namespace}", namespace)
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE SCHEMA {namespace}")
    await connection.close()
    return Memory(kind, engine, f"{url}&search_path={namespace}", namespace)


def said(*texts: str) -> list[Message]:
    return [Message("user", text) for text in texts]


async def written(store: Store) -> None:
    """A little of everything: three turns of three messages in `s`, and another session beside it."""
    for turn in range(3):
        await store.append("s", said("a", "b", "c"), turn=f"turn-{turn}")
    await store.append("other", said("x"))
