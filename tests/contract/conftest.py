"""The contract suite runs on every store, each on a real engine that this test process started.

By default one engine of each kind. `RECOLLECT_CONTRACT_ENGINES=redis@6.2,postgres@16` names others, and `make
test-engines` has all that are supported.
"""

import itertools
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from recollect import Store, open_store
from recollect.stores.redis.slots import slot_of
from recollect.verify import engines
from recollect.verify.engines import Engine
from recollect.verify.engines.redis_cluster import RedisClusterEngine
from recollect.verify.engines.redis_sentinel import RedisSentinelEngine

STORES = tuple(os.environ.get("RECOLLECT_CONTRACT_ENGINES", "sqlite,redis,postgres").split(","))
POLICIES = {"sqlite": "wal-full", "redis": "aof-always", "postgres": "default"}


def kind_of(spec: str) -> str:
    """Of an engine like redis@6.2: which store lives on it."""
    name = spec.partition("@")[0]
    return "redis" if name.startswith(("redis", "valkey")) else name.removesuffix("-ha")


def policy_of(spec: str) -> str:
    return "asynchronous" if spec.partition("@")[0] == "postgres-ha" else POLICIES[kind_of(spec)]


@dataclass
class Place:
    """Where a store lives, and the engine under it."""

    name: str
    engine: Engine
    url: str

    def beside(self, session: str, suffix: object) -> str:
        """Another session that one step may span with the first: in Redis, one of the same slot of a cluster."""
        if self.name != "redis":
            return f"{session}-{suffix}"
        names = (f"{session}-{suffix}-{number}" for number in itertools.count())
        return next(name for name in names if slot_of(f"s{name}".encode()) == slot_of(f"s{session}".encode()))

    def redis(self) -> Any:
        """A client of redis-py for what is done behind the store's back."""
        if isinstance(self.engine, RedisClusterEngine):
            return redis.asyncio.RedisCluster.from_url(self.engine.endpoint.nodes[0])
        if isinstance(self.engine, RedisSentinelEngine):
            return redis.asyncio.Redis.from_url(self.engine.primary().endpoint.url)
        return redis.asyncio.Redis.from_url(self.url)

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Store]:
        async with open_store(self.url, **options) as store:
            yield store


@pytest.fixture(scope="session")
def engine_of() -> Iterator[Callable[[str], Engine]]:
    """Starts each engine once for all tests of this process."""
    started: dict[str, Engine] = {}

    def get(name: str) -> Engine:
        if name not in started:
            started[name] = engines.create(name, policy_of(name))
            started[name].start()
        return started[name]

    yield get
    for engine in started.values():
        engine.close()


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path) -> Place:
    engine = engine_of(request.param)
    if request.param == "sqlite":
        return Place("sqlite", engine, f"sqlite:///{tmp_path}/memory.db")
    return Place(kind_of(request.param), engine, engine.endpoint.socket_url or engine.endpoint.url)


@pytest.fixture(params=STORES)
def own_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place with an engine of its own, for tests that break or wipe it."""
    engine = engines.create(request.param, policy_of(request.param))
    endpoint = engine.start()
    url = (
        f"sqlite:///{tmp_path}/memory.db"
        if request.param == "sqlite"
        else endpoint.socket_url or endpoint.url
    )
    yield Place(kind_of(request.param), engine, url)
    engine.close()


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    async with place.open() as opened:
        yield opened


@pytest.fixture
def session() -> str:
    """A session id that no other test uses: the engines are shared."""
    return f"session-{uuid.uuid4()}"
