"""A schema of its own for each test, on one PostgreSQL per test process; and a connection beside the store."""

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import asyncpg
import pytest

from recollect.verify import engines
from recollect.verify.engines.postgres import PostgresEngine

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection


@dataclass
class Place:
    engine: PostgresEngine
    schema: str
    direct: Connection
    """A connection of the test's own, in the same schema."""

    @property
    def url(self) -> str:
        return f"{self.engine.endpoint.socket_url}&search_path={self.schema}"

    def url_as(self, role: str) -> str:
        return self.url.replace("//postgres@", f"//{role}@", 1)


def started(spec: str = "postgres", policy: str = "default") -> PostgresEngine:
    engine = engines.create(spec, policy)
    assert isinstance(engine, PostgresEngine)
    engine.start()
    return engine


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresEngine]:
    engine = started()
    yield engine
    engine.close()


@pytest.fixture
async def place(postgres: PostgresEngine) -> AsyncIterator[Place]:
    async for made in places(postgres):
        yield made


async def places(engine: PostgresEngine) -> AsyncIterator[Place]:
    schema = f"s{uuid.uuid4().hex}"
    assert engine.endpoint.socket_url is not None
    connection = await asyncpg.connect(f"{engine.endpoint.socket_url}&search_path={schema}")
    await connection.execute(f"CREATE SCHEMA {schema}")
    yield Place(engine, schema, connection)
    if not connection.is_closed():
        await connection.close()


async def until(condition: Callable[[], Awaitable[object]], what: str, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, f"never: {what}"
