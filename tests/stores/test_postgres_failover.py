"""PostgreSQL with a standby: what a failover loses is told and keeps its sequences; which host is the primary."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from recollect import Message, SessionState, Stored, open_store
from recollect.verify.engines.postgres import PostgresEngine, PostgresReplica
from tests.stores.postgres_place import started


@dataclass
class Pair:
    primary: PostgresEngine
    standby: PostgresReplica
    schema: str

    def url(self, *engines: PostgresEngine) -> str:
        """Of these hosts, in this order."""
        hosts = ",".join(f"127.0.0.1:{engine.port}" for engine in engines)
        password = self.primary.password
        return f"postgresql://postgres:{password}@{hosts}/postgres?search_path={self.schema}"

    @property
    def both(self) -> str:
        return self.url(self.primary, self.standby.engine)

    def cut_off(self) -> None:
        """From now on the standby gets nothing; what was acknowledged until now it has."""
        self.standby.wait_caught_up()
        self.standby.pause_replay()

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.promote()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    engine = started()
    try:
        made = Pair(engine, engine.replica(), f"s{uuid.uuid4().hex}")
        engine.ask(f"CREATE SCHEMA {made.schema}")
        yield made
    finally:
        await asyncio.to_thread(engine.close)


def say(*words: str) -> list[Message]:
    return [Message("user", word) for word in words]


def shape(found: list[Stored]) -> list[int | tuple[int, str]]:
    """Sequences of messages; of what is damaged, the sequence and the first words of the reason."""
    return [
        item.sequence
        if isinstance(item.message, Message)
        else (item.sequence, " ".join(item.message.reason.split()[:4]))
        for item in found
    ]


async def test_what_a_failover_loses_is_told_and_no_sequence_is_given_again(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(pair.both) as store:
        await store.append("s", say("a", "b", "c"))
        await store.append("quiet", say("a"))
        for session in ("alone", "marked", "replaced", "forgotten", "source", "annotated", "many"):
            await store.append(session, say("a", "b"))
        await store.retract("marked", 1)
        pair.cut_off()
        await store.append("s", say("d", "e"), turn="t")
        await store.append("late", say("a"))
        for session in ("alone", "marked", "replaced", "forgotten", "source", "annotated", "many"):
            await store.append(session, say("c"))
        pair.fail_over()

        with caplog.at_level(logging.ERROR, "recollect"):
            assert shape(await store.history("s")) == [1, 2, 3, (4, "messages 4 to 5")]
        assert "lost acknowledged messages: it is at sequence 3, it was at 5" in caplog.text
        assert shape(await store.history("s", last=1)) == [3, (4, "messages 4 to 5")]
        assert shape(await store.history("late")) == [(1, "message 1 is gone:")]
        assert shape(await store.history("quiet")) == [1]
        assert shape(await store.history("marked")) == [2, (4, "message 4 is gone:")]
        assert await store.position("s") == 5
        assert (await store.describe("s")).position == 5
        assert await store.state("late") is SessionState.LIVE
        assert (await store.describe("late")).state is SessionState.LIVE

        # Its turn is lost with it, so a retry stores it again, in a new place.
        assert (await store.append("s", say("d", "e"), turn="t", expect=5)).first == 6
        assert (await store.append("late", say("b"))).first == 2
        assert (await store.append("alone", say("d"))).first == 4
        assert (await store.retract("marked", 2)).first == 5
        assert (await store.replace("replaced", say("x"))).first == 4
        assert (await store.annotate("annotated", {"a": 1})).first == 4
        assert (await store.append_many({"many": say("d")}))["many"].first == 4
        assert (await store.fork("source", "copy")).last == 3
        await store.forget("forgotten", expect=3)
        assert await store.history("forgotten") == []
        assert (await store.append("forgotten", say("d"))).first == 4
    async with open_store(pair.both) as other:
        assert shape(await other.history("s")) == [1, 2, 3, (4, "messages 4 to 5"), 6, 7]
        assert shape(await other.history("copy")) == [1, 2, (3, "message 3 is gone:")]
        assert shape(await other.history("replaced")) == [4]


async def test_a_failover_in_the_middle_of_a_batch_gives_no_sequence_again(pair: Pair) -> None:
    names = [f"s{number}" for number in range(20)]
    async with open_store(pair.both) as store:
        await asyncio.gather(*(store.append(name, say("a")) for name in names))
        pair.cut_off()
        given = await asyncio.gather(*(store.append(name, say("lost")) for name in names[::2]))
        pair.fail_over()
        again = await asyncio.gather(*(store.append(name, say("b")) for name in names))
        assert [receipt.first for receipt in again] == [3, 2] * 10
        assert {receipt.first for receipt in given} == {2}
        assert shape(await store.history("s0")) == [1, (2, "message 2 is gone:"), 3]
        assert shape(await store.history("s1")) == [1, 2]


async def test_a_crash_that_loses_buffered_commits_gives_no_sequence_again() -> None:
    """Without any standby: the last commits of `synchronous_commit = off` are only in memory when the engine dies."""
    engine = started(policy="async-commit")
    try:
        engine.ask("ALTER SYSTEM SET wal_writer_delay = '10s'")
        engine.ask("SELECT pg_reload_conf()")
        async with open_store(engine.endpoint.url) as store:
            first = await store.append("s", say("a"))
            engine.ask("CHECKPOINT")
            lost = await store.append("s", say("b"))
            await asyncio.to_thread(engine.kill)
            await asyncio.to_thread(engine.restart)
            after = await store.append("s", say("c"))
            assert (first.last, lost.last, after.last) == (1, 2, 3)
            found = shape(await store.history("s"))
            assert found in ([1, (2, "message 2 is gone:"), 3], [1, 2, 3])
    finally:
        await asyncio.to_thread(engine.close)
