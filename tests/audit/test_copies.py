"""A Redis replica and a PostgreSQL standby are audited like their primary: whole, and without a write."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis

from recollect import open_store
from recollect.audit import audit
from recollect.errors import CannotOpen
from recollect.verify import engines
from tests.audit.memories import said, written


@dataclass
class Pair:
    """A server and its copy, and the memory as each of them is asked for it."""

    engine: Any
    copy: Any
    namespace: str

    @property
    def url(self) -> str:
        return self._of(self.engine.endpoint.url)

    @property
    def copy_url(self) -> str:
        return self._of(self.copy.endpoint.url)

    def _of(self, url: str) -> str:
        return f"{url}?{'search_path' if url.startswith('postgresql') else 'prefix'}={self.namespace}"

    async def damage(self) -> None:
        """Behind the store's back, on the primary: a message in the middle is gone."""
        if self.engine.name == "redis":
            with redis.Redis.from_url(self.engine.endpoint.url) as hands:
                name = f"{self.namespace}:{{ss}}:m"
                hands.lrem(name, 1, hands.lindex(name, 1))
        else:
            await self.execute("DELETE FROM recollect_messages WHERE sequence = 2")

    async def execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(statement)
        await connection.close()


@pytest.fixture(
    scope="module", params=[("redis@7", "none"), ("postgres", "default")], ids=["redis", "postgres"]
)
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    engine: Any = engines.create(*request.param)
    try:
        engine.start()
        yield engine, engine.replica()
    finally:
        engine.close()


@pytest.fixture
async def pair(servers: tuple[Any, Any]) -> Pair:
    made = Pair(*servers, f"a{uuid.uuid4().hex}")
    if made.engine.name == "postgres":
        await made.execute(f"CREATE SCHEMA {made.namespace}")
    return made


async def test_a_copy_is_read_to_the_end(pair: Pair) -> None:
    async with open_store(pair.url) as store:
        await written(store)
        identity = store.identity
    pair.copy.wait_caught_up()
    before = pair.engine.written()
    report = await audit(pair.copy_url, rate=None)
    assert (report.sessions, report.messages, report.counts) == (2, 10, {})
    assert (report.identity, report.exit_code()) == (identity, 0)
    assert pair.engine.written() == before

    await pair.damage()
    pair.copy.wait_caught_up()
    found = (await audit(pair.copy_url, rate=None)).findings
    assert [(one.name, one.session, one.first) for one in found if one.level == "damage"] == [
        ("half-turn", "s", 2)
    ]


async def test_a_copy_that_is_behind_was_not_rolled_back(pair: Pair, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    async with open_store(pair.url, witness=witness) as store:
        await store.append("s", said("a", "b"))
        pair.copy.wait_caught_up()
        pair.copy.pause_replay()
        try:
            await store.append("s", said("c"))
            await store.close()
            report = await audit(pair.copy_url, rate=None, witness=witness)
            assert [(one.name, one.level, one.first, one.last) for one in report.findings] == [
                ("behind", "note", 3, 3)
            ]
            assert (report.messages, report.exit_code()) == (2, 0)
            assert (await audit(pair.url, rate=None, witness=witness)).counts == {}
        finally:
            pair.copy.resume_replay()
        pair.copy.wait_caught_up()
        assert (await audit(pair.copy_url, rate=None, witness=witness)).counts == {}


async def test_a_copy_that_has_received_nothing(pair: Pair) -> None:
    if pair.engine.name != "redis":
        pytest.skip("a standby has the whole database, or nothing that answers")
    for url, told in ((pair.copy_url, "copy of another server"), (pair.url, "nothing was ever stored")):
        with pytest.raises(CannotOpen, match=told):
            await audit(url, rate=None)
