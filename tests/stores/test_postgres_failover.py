"""PostgreSQL with a standby: what a failover loses is told and keeps its sequences; which host is the primary."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from recollect import (
    CannotOpen,
    Conflict,
    EngineUnavailable,
    Message,
    NotWritten,
    SessionState,
    Store,
    Stored,
    open_store,
)
from recollect.stores.postgres import hosts
from recollect.stores.postgres.store import PostgresStore
from recollect.verify.engines.postgres import PostgresEngine, PostgresReplica
from recollect.verify.host.ports import Reservation
from tests.stores.postgres_place import Connection, started


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
        with pytest.raises(Conflict, match="has lost messages up to sequence 5"):
            await store.append("s", say("d", "e"), turn="t", expect=5)
        assert (await store.append("s", say("d", "e"), turn="t", expect=5)).first == 6
        assert (await store.append("late", say("b"))).first == 2
        assert (await store.append("alone", say("d"))).first == 4
        assert (await store.retract("marked", 2)).first == 5
        assert (await store.replace("replaced", say("x"))).first == 4
        assert (await store.annotate("annotated", {"a": 1})).first == 4
        assert (await store.append_many({"many": say("d")}))["many"].first == 4
        assert (await store.fork("source", "copy")).last == 3
        with pytest.raises(Conflict):
            await store.forget("forgotten", expect=3)
        await store.forget("forgotten", expect=3)
        assert await store.history("forgotten") == []
        assert (await store.append("forgotten", say("d"))).first == 4
    async with open_store(pair.both) as other:
        assert shape(await other.history("s")) == [1, 2, 3, (4, "messages 4 to 5"), 6, 7]
        # The last n are messages, not places: what is lost does not push out what is there.
        assert shape(await other.history("s", last=3)) == [3, (4, "messages 4 to 5"), 6, 7]
        assert shape(await other.history("alone", last=3)) == [1, 2, (3, "message 3 is gone:"), 4]
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


# ---- which of several hosts is the primary


async def test_of_two_primaries_the_newer_one_is_taken_and_never_left_for_the_older(pair: Pair) -> None:
    old, new = pair.primary, pair.standby.engine
    async with open_store(pair.both, timeout_s=30) as before:
        assert isinstance(before, PostgresStore)
        await before.append("s", say("a"))
        pair.standby.wait_caught_up()
        pair.standby.promote()

        async with open_store(pair.both, timeout_s=30) as store:
            await store.append("new", say("a"))
        assert counted(new, pair, "new") == 1
        assert counted(old, pair, "new") == 0

        # A store with connections of the old one leaves them as soon as it has seen the new one.
        held = await before._pool.acquire(time.monotonic() + 30)
        fresh = await before._pool.acquire(time.monotonic() + 30)
        assert [await port_of(held), await port_of(fresh)] == [old.port, new.port]
        before._pool.release(held)
        before._pool.release(fresh)
        await before.append("left", say("a"))
        assert counted(new, pair, "left") == 1
        assert counted(old, pair, "left") == 0

    old.pause()  # hangs, and is the first of the list
    try:
        async with open_store(pair.both, timeout_s=10) as store:
            await store.append("s", say("b"))
            assert shape(await store.history("s")) == [1, 2]
            old.resume()
            await asyncio.to_thread(new.kill)
            await _until_refused(store)
    finally:
        old.resume()
    assert counted(old, pair, "s") == 1


async def _until_refused(store: Store) -> None:
    """The old primary may need a while to answer after it hung; whatever is asked of it meanwhile is refused, too."""
    assert isinstance(store, PostgresStore)
    store._timeout_s = 1.0
    deadline = time.monotonic() + 60
    told: set[str] = set()
    while told < {"written", "read"} and time.monotonic() < deadline:
        with pytest.raises(NotWritten) as refused:
            await store.append("s", say("lost"))
        if "timeline 1; this store has seen 2" in str(refused.value):
            told.add("written")
        with pytest.raises(EngineUnavailable) as unread:
            await store.history("s")
        if "an old primary answers" in str(unread.value):
            told.add("read")
    assert told == {"written", "read"}


def counted(engine: PostgresEngine, pair: Pair, session: str) -> int:
    """Messages of the session that this server has."""
    return int(
        engine.ask(
            f"SELECT count(*) FROM {pair.schema}.recollect_messages m JOIN {pair.schema}.recollect_sessions s "
            f"ON s.id = m.session_id WHERE s.name = '{session}'"
        )[0][0]
        or 0
    )


async def port_of(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT inet_server_port()"))


async def test_a_promotion_is_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()
    ask_all = hosts._ask_all

    async def noted(*arguments: Any) -> hosts.Connected | None:
        found = await ask_all(*arguments)
        if found is None:
            asked.set()
        return found

    async with open_store(f"{pair.both}&target_session_attrs=read-write", timeout_s=30) as store:
        await store.append("s", say("a"))
        pair.standby.wait_caught_up()
        await asyncio.to_thread(pair.primary.kill)
        monkeypatch.setattr(hosts, "_ask_all", noted)
        reading = asyncio.create_task(store.history("s"))
        await asyncio.wait_for(asked.wait(), 30)
        await asyncio.to_thread(pair.standby.promote)
        assert shape(await reading) == [1]
        assert (await store.append("s", say("b"))).first == 2


async def test_a_host_of_read_url_that_hangs_hides_no_standby(pair: Pair) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        password = pair.primary.password
        hosts_named = f"127.0.0.1:{port},127.0.0.1:{pair.primary.port},127.0.0.1:{pair.standby.engine.port}"
        read_url = f"postgresql://postgres:{password}@{hosts_named}/postgres?search_path={pair.schema}"
        async with open_store(pair.url(pair.primary), read_url=read_url, timeout_s=20) as store:
            await store.append("s", say("a"))
            pair.standby.wait_caught_up()
            assert shape(await store.history("s")) == [1]
            [[serving]] = pair.standby.engine.ask(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FROM recollect_messages%'"
                " AND pid <> pg_backend_pid()"
            )
            assert serving == "1"


@pytest.mark.parametrize("connect", [hosts.connect, hosts.connect_standby])
async def test_a_caller_that_gives_up_while_other_hosts_are_let_go_leaves_no_connection(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, connect: Callable[[str, float], Awaitable[Connection]]
) -> None:
    taken = pair.primary if connect is hosts.connect else pair.standby.engine
    let_go, ask = asyncio.Event(), hosts._ask

    async def asked(url: str, host: dict[str, Any], deadline: float) -> hosts.Connected:
        if host["port"] == taken.port:
            return await ask(url, host, deadline)
        try:
            await asyncio.Event().wait()
        finally:
            let_go.set()
            await asyncio.Event().wait()  # until it is cancelled once more
        raise AssertionError("unreachable")

    monkeypatch.setattr(hosts, "_ask", asked)
    connecting = asyncio.ensure_future(connect(pair.both, time.monotonic() + 60))
    await asyncio.wait_for(let_go.wait(), 30)
    connecting.cancel()
    await asyncio.wait([connecting], timeout=30)
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    async with asyncio.timeout(10):
        while taken.ask(others)[0][0] != "0":
            await asyncio.sleep(0.02)


async def test_when_no_host_answers_the_error_is_theirs() -> None:
    one, other = Reservation(), Reservation()  # nobody listens
    try:
        with pytest.raises(EngineUnavailable, match="Connect call failed"):
            await open_store(f"postgresql://u@127.0.0.1:{one.port},127.0.0.1:{other.port}/db", timeout_s=30)
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@a,b:6000/db", [("a", 5432), ("b", 6000)]),
        ("postgresql://a,b/db?port=6000", [("a", 6000), ("b", 6000)]),
        ("postgresql:///db?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgresql:///db?host=/run/one,/run/two&port=1,2", [("/run/one", 1), ("/run/two", 2)]),
        ("postgresql://[::1]:7000,[fe80::1]/db", [("::1", 7000), ("fe80::1", 5432)]),
        ("postgresql://%2Frun%2Fone,b/db", [("/run/one", 5432), ("b", 5432)]),
        ("postgresql:///db", []),
    ],
)
def test_the_hosts_of_an_address(url: str, expected: list[tuple[str, int]]) -> None:
    assert [(host["host"], host["port"]) for host in hosts.hosts_of(url)] == expected


@pytest.mark.parametrize(
    "url", ["postgresql://u@one,/db", "postgresql://u@,one/db", "postgresql:///db?host=one,"]
)
async def test_a_host_without_a_name_is_told(url: str) -> None:
    with pytest.raises(CannotOpen, match="a host in the list has no name"):
        await open_store(url)
