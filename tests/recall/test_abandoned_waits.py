"""When an operator ends a commit's wait for its standbys: no change of long-term memory, and no erasure, is
acknowledged."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import Message, OutcomeUnknown, open_store
from recollect.appending import session_key
from recollect.recall import Recall, open_recall
from recollect.stores.postgres.abandoned_waits import WAIT_FOR_STANDBYS
from recollect.stores.postgres.store import PostgresStore
from recollect.verify.engines.postgres import PostgresEngine
from tests.stores.postgres_place import started

SAID = [Message("user", "I like green tea", id="m1")]

CHANGES: dict[str, tuple[Callable[[Recall], Awaitable[object]], str, int]] = {
    "a fact": (lambda recall: recall.add("alice", ["likes tea"], turn="t"), "with the same turn id", 2),
    "a summary": (
        lambda recall: recall.remember("alice", SAID, session="s", turn="t"),
        "with the same turn id",
        2,
    ),
    "one forgotten": (lambda recall: recall.forget("alice", 1), "forget again", 0),
    "all forgotten": (lambda recall: recall.forget("alice"), "forget again", 0),
}
"""The change, what to do when its outcome is unknown, and how many memories there are in the end."""


@pytest.fixture(scope="module")
def engine() -> Iterator[PostgresEngine]:
    engine = started()
    yield engine
    engine.close()


def own_schema(engine: PostgresEngine) -> str:
    schema = f"s{uuid.uuid4().hex}"
    engine.ask(f"CREATE SCHEMA {schema}")
    return f"{engine.endpoint.socket_url}&search_path={schema}"


def name_standbys(engine: PostgresEngine, names: str) -> None:
    engine.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    engine.ask("SELECT pg_reload_conf()")


async def lose_standbys(engine: PostgresEngine) -> None:
    """From now on, every commit waits for a standby that is not there."""
    name_standbys(engine, "nobody")
    waited = None
    while waited is None:  # the setting takes a moment
        commit = asyncio.ensure_future(asyncio.to_thread(engine.ask, WAIT_FOR_STANDBYS))
        waited = await waiting(engine, commit)
        if waited is not None:
            end_wait(engine, waited)
        await commit


async def waiting(engine: PostgresEngine, commit: "asyncio.Future[Any]") -> str | None:
    """The server process in which this commit waits for standbys; None if it ends without."""
    while not commit.done():
        if found := engine.ask("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):
            return str(found[0][0])
        await asyncio.sleep(0.01)
    return None


def end_wait(engine: PostgresEngine, pid: str) -> None:
    engine.ask(f"SELECT pg_cancel_backend({pid})")


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_no_longer_waits_is_not_acknowledged_and_a_retry_waits_again(
    engine: PostgresEngine, tmp_path: Path, change: str
) -> None:
    make, advice, left = CHANGES[change]
    async with (
        open_store(f"sqlite:///{tmp_path}/conversations.db") as conversations,
        open_recall(own_schema(engine), conversations=conversations, timeout_s=60) as recall,
    ):
        await recall.add("alice", ["likes coffee"])
        await lose_standbys(engine)
        try:
            first = asyncio.ensure_future(make(recall))
            pid = await waiting(engine, first)
            assert pid is not None
            end_wait(engine, pid)
            with pytest.raises(OutcomeUnknown, match=f"stop waiting for its standbys.*{advice}$"):
                await first
            again = asyncio.ensure_future(make(recall))
            assert await waiting(engine, again) is not None, "acknowledged, and nobody waited"
        finally:
            name_standbys(engine, "")
        await again
        assert len(await recall.memories("alice")) == left


async def test_an_erasure_that_no_longer_waits_is_not_reported(engine: PostgresEngine) -> None:
    key = session_key("s")
    async with open_store(own_schema(engine), timeout_s=60) as store:
        assert isinstance(store, PostgresStore)
        await store.append("s", SAID)
        await lose_standbys(engine)
        try:
            for _ in range(2):  # the second one finds no rows
                erasure = asyncio.ensure_future(store._erase("s", key, None))
                pid = await waiting(engine, erasure)
                assert pid is not None
                end_wait(engine, pid)
                with pytest.raises(OutcomeUnknown, match="stop waiting for its standbys"):
                    await asyncio.wait_for(erasure, 30)
        finally:
            name_standbys(engine, "")
        assert "recollect_messages" in (await store._erase("s", key, None)).reached


async def test_what_vacuum_warns_of_is_no_abandoned_wait(engine: PostgresEngine) -> None:
    """It may not rewrite the statistics, which are the superuser's."""
    url = own_schema(engine)
    engine.ask("CREATE ROLE humble LOGIN")
    engine.ask(f"GRANT ALL ON SCHEMA {url.rpartition('=')[2]} TO humble")
    url = url.replace("//postgres@", "//humble@", 1)
    async with open_recall(url, pool_size=1) as recall:
        await recall.add("alice", ["likes tea"])
        report = await recall.erase("alice")
        assert "pg_statistic" in [each.where for each in report.unreached]
        await recall.add("alice", ["likes coffee"])
    async with open_store(url, pool_size=1) as store:
        await store.append("s", SAID)
        erased = await store.forget("s", erase=True)
        assert erased is not None
        assert "pg_statistic" in [each.where for each in erased.unreached]
        await store.append("s", SAID)
