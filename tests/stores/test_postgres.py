"""What only the PostgreSQL store does; what every store does is in `tests/contract`."""

import asyncio
import socket
import time
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from recollect import (
    Conflict,
    Damaged,
    EngineUnavailable,
    Message,
    NotWritten,
    OutcomeUnknown,
    Receipt,
    StoreReplaced,
    open_store,
)
from recollect.stores.postgres import schema
from recollect.stores.postgres import store as module
from recollect.stores.postgres.pool import READ_BYTES_MAX
from recollect.verify.engines import NotInstalled
from tests.stores.postgres_place import Place, places, started, until


def said(text: str = "hello") -> list[Message]:
    return [Message("user", text)]


async def texts(store: Any, session: str, **window: int) -> list[str]:
    return [
        f"gone: {item.message.reason}" if isinstance(item.message, Damaged) else item.message.text
        for item in await store.history(session, **window)
    ]


@pytest.mark.parametrize("version", ["15", "16", "18"])
async def test_every_supported_version_keeps_the_contract(version: str) -> None:
    try:
        engine = started(f"postgres@{version}")
    except NotInstalled as error:
        pytest.skip(str(error))
    try:
        async for place in places(engine):
            async with open_store(place.url, ttl=timedelta(hours=1)) as store:
                await store.append("s", said("one"), turn="t1")
                await store.append("s", said("two") + said("three"), turn="t2", expect=1)
                again = await store.append("s", said("two") + said("three"), turn="t2", expect=1)
                assert (again.first, again.last) == (2, 3)
                with pytest.raises(Conflict):
                    await store.append("s", said("four"), expect=1)
                await asyncio.gather(*(store.append(f"g{n % 3}", said(str(n))) for n in range(9)))
                assert await texts(store, "s", last=2) == ["two", "three"]
                assert await texts(store, "g1") == ["1", "4", "7"]
                await store.forget("s")
                assert (await store.append("s", said("five"))).first == 4
    finally:
        engine.close()


def counted_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that stores send from now on."""
    sent: list[str] = []
    fetch = asyncpg.Connection.fetch

    async def counted(self: Any, query: str, *arguments: Any, **options: Any) -> Any:
        if "recollect_version" not in query:  # asked by each new connection
            sent.append(query)
        return await fetch(self, query, *arguments, **options)

    monkeypatch.setattr(asyncpg.Connection, "fetch", counted)
    return sent


async def test_an_append_is_one_round_trip(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(place.url) as store:
        await store.append("warm", said())
        sent = counted_statements(monkeypatch)
        await store.append("new", said())
        await store.append("new", said(), turn="t", expect=1)
        await store.append("new", said() + said())
        assert len(sent) == 3
        sent.clear()
        await asyncio.gather(*(store.append(f"s{n}", said(), turn="t") for n in range(8)))
        assert len(sent) == 1, "appends that arrive together are sent together"
        sent.clear()
        assert len(await store.history("new")) == 4
        assert len(sent) == 1


async def test_history_of_the_last_reads_only_those(place: Place) -> None:
    async with open_store(place.url) as store:
        await store.append("s", [Message("user", str(n)) for n in range(1, 5001)])
        await place.direct.execute("ANALYZE")
        lines = [
            row[0]
            for row in await place.direct.fetch(
                "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + schema.HISTORY, b"s", 0, 100
            )
        ]
        plan = "\n".join(lines)
        assert "Sort" not in plan
        assert "Seq Scan on recollect_messages" not in plan
        assert "Removed by Filter" not in plan
        assert await texts(store, "s", last=2) == ["4999", "5000"]
        assert await texts(store, "s", after=4990, last=3) == ["4998", "4999", "5000"]


async def test_an_answer_is_read_into_a_small_buffer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what glibc keeps: a larger one comes from the kernel, page by page, for each answer."""
    async with open_store(place.url) as store:
        await store.append("s", [Message("user", "x" * 1_000)] * 200)
        asked: list[int] = []
        receive = socket.socket.recv

        def recv(one: socket.socket, size: int) -> bytes:
            asked.append(size)
            return receive(one, size)

        monkeypatch.setattr(socket.socket, "recv", recv)
        assert len(await store.history("s")) == 200
        assert 0 < max(asked) <= READ_BYTES_MAX


async def test_appending_updates_no_index_of_the_session(place: Place) -> None:
    async with open_store(place.url, ttl=timedelta(hours=1)) as store:
        for _ in range(50):
            await store.append("s", said())
    await place.direct.execute("SELECT pg_stat_force_next_flush()")

    async def counts() -> asyncpg.Record:
        row = await place.direct.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "
            "WHERE relname = 'recollect_sessions' AND schemaname = $1",
            place.schema,
        )
        assert row is not None
        return row

    async def flushed() -> bool:
        return (await counts())[0] >= 49  # type: ignore[no-any-return]

    await until(flushed, "statistics of 49 updates")
    updates, hot = await counts()
    assert hot >= updates - 2


async def test_one_appends_conflict_leaves_its_batch_alone(place: Place) -> None:
    async with open_store(place.url) as store:
        for name in "abc":
            await store.append(name, said())
        results = await asyncio.gather(
            *(store.append(name, said(), expect=expect) for name, expect in (("c", 1), ("b", 7), ("a", 1))),
            store.append("b", said("plain")),
            store.append("new", said(), expect=3),
            return_exceptions=True,
        )
        assert [result.last for result in results if isinstance(result, Receipt)] == [2, 2, 2]
        assert [(error.expected, error.actual) for error in results if isinstance(error, Conflict)] == [
            (7, 1),
            (3, 0),
        ]


async def test_batches_are_cut_by_size(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES_MAX", 1000)
    async with open_store(place.url) as store:
        receipts = await asyncio.gather(
            *(store.append(f"s{n % 2}", said(str(n) * 200), turn=str(n)) for n in range(10))
        )
        assert [receipt.last for receipt in receipts] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


async def test_one_turn_from_many_stores_is_stored_once(place: Place) -> None:
    stores = [await open_store(place.url) for _ in range(4)]
    for round_number in range(10):
        receipts = await asyncio.gather(
            *(store.append("s", said(str(round_number)), turn=f"t{round_number}") for store in stores * 2)
        )
        assert len({(receipt.first, receipt.last) for receipt in receipts}) == 1
    assert await texts(stores[0], "s") == [str(n) for n in range(10)]
    await asyncio.gather(*(store.close() for store in stores))


@pytest.mark.parametrize("knowing", [0, 1, 2])
async def test_batches_lock_sessions_in_one_order(
    place: Place, monkeypatch: pytest.MonkeyPatch, knowing: int
) -> None:
    """Two batches with the same sessions, in opposite order, both stopped in the middle: none waits for the other.
    A store that has written to the sessions before sends another statement than one that has not."""
    stores = [await open_store(place.url) for _ in range(2)]
    async with open_store(place.url) as before:
        for number in range(2):
            for name in "amz":
                await (stores[number] if number < knowing else before).append(name, said())
    sent = counted_statements(monkeypatch)
    async with place.direct.transaction():
        await place.direct.execute("SELECT FROM recollect_sessions WHERE name = 'm' FOR UPDATE")
        appends = [
            asyncio.gather(*(store.append(name, said()) for name in names))
            for store, names in zip(stores, ("amz", "zma"), strict=True)
        ]
        await until(lambda: _waiting(place, 2), "both batches wait for a lock")
    lasts = sorted(receipt.last for receipts in await asyncio.gather(*appends) for receipt in receipts)
    assert lasts == [3, 3, 3, 4, 4, 4]
    together = schema.APPEND_TOGETHER[False, False, False]
    assert sorted(sent) == sorted([together] * knowing + [schema.APPEND] * (2 - knowing)), (
        "a deadlock was broken, and the batch sent again"
    )
    await asyncio.gather(*(store.close() for store in stores))


async def test_remembered_turns_are_bounded(place: Place) -> None:
    async with open_store(place.url, turns_kept=10) as store:
        for n in range(120):
            await store.append("s", said(str(n)), turn=str(n))
        rows = await place.direct.fetchval("SELECT count(*) FROM recollect_turns")
        assert 10 <= rows <= 10 + 1 + 16
        assert rows == await place.direct.fetchval("SELECT turns FROM recollect_sessions")
        for n in range(110, 120):
            assert (await store.append("s", said(str(n)), turn=str(n))).last == n + 1


async def test_forgetting_and_sweeping_delete_in_batches(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "ROWS_FREED_MAX", 7)
    async with open_store(place.url) as store, open_store(place.url, ttl=timedelta(milliseconds=1)) as brief:
        await store.append("forgotten", [Message("user", str(n)) for n in range(40)])
        await store.forget("forgotten")
        assert await place.direct.fetchval("SELECT count(*) FROM recollect_messages") == 0
        for name in ("e1", "e2"):
            await brief.append(name, [Message("user", str(n)) for n in range(20)])

        async def expired() -> bool:
            return await brief.history("e1") == await brief.history("e2") == []

        await until(expired, "both sessions expired")
        assert await store.sweep() == 2
        assert await store.sweep() == 0
        assert await place.direct.fetchval("SELECT count(*) FROM recollect_messages") == 0
        assert (await store.append("e1", said())).first == 21


async def test_a_schema_is_a_namespace(place: Place) -> None:
    await place.direct.execute(f"CREATE SCHEMA {place.schema}_b")
    other = place.url.replace(place.schema, f"{place.schema}_b")
    async with open_store(place.url) as store, open_store(other) as neighbour:
        await store.append("s", said())
        assert await neighbour.history("s") == []
        assert store.identity != neighbour.identity


async def test_serializable_by_default_still_appends(place: Place) -> None:
    role = f"strict_{place.schema}"
    await place.direct.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
    await place.direct.execute(f"ALTER ROLE {role} SET default_transaction_isolation = 'serializable'")
    stores = [await open_store(place.url_as(role)) for _ in range(3)]
    await asyncio.gather(*(store.append("s", said(), turn=f"{n}") for n in range(20) for store in stores))
    assert len(await stores[0].history("s")) == 20
    await asyncio.gather(*(store.close() for store in stores))


# ---- errors


async def test_a_row_of_a_foreign_hand_is_an_error_of_ours(place: Place) -> None:
    async with open_store(place.url) as store:
        await store.append("s", said())
        await place.direct.execute(
            "INSERT INTO recollect_messages SELECT session_id, 2, record FROM recollect_messages"
        )
        with pytest.raises(NotWritten, match="duplicate key"):
            await store.append("s", said())
        assert [isinstance(item.message, Damaged) for item in await store.history("s")] == [False, True]
        results = await asyncio.gather(
            *(store.append(name, said()) for name in "qrst"), return_exceptions=True
        )
        assert [type(result) for result in results] == [Receipt, Receipt, NotWritten, Receipt]


async def test_a_held_lock_holds_nobody_up_for_ever(place: Place) -> None:
    async with open_store(place.url, pool_size=1, timeout_s=2.0) as store:
        await store.append("s", said("before"))
        async with place.direct.transaction():
            await place.direct.execute("SELECT FROM recollect_sessions FOR UPDATE")
            stuck = asyncio.create_task(store.append("s", said("stuck"), turn="t1"))
            waiting = asyncio.create_task(store.append("s", said("waiting"), turn="t2"))
            await until(lambda: _waiting(place), "an append waits for the lock")
            with pytest.raises(EngineUnavailable):
                await store.history("s")
            for append in (stuck, waiting):
                with pytest.raises((OutcomeUnknown, NotWritten)):
                    await append
        await store.append("s", said("stuck"), turn="t1")
        await store.append("s", said("waiting"), turn="t2")
        assert sorted(await texts(store, "s")) == ["before", "stuck", "waiting"]


async def test_an_exhausted_pool_says_its_size(place: Place) -> None:
    async with open_store(place.url, pool_size=2, timeout_s=2.0) as store:
        assert isinstance(store, module.PostgresStore)
        await store.append("s", said())
        held = [await store._pool.acquire(time.monotonic() + 5) for _ in range(2)]
        with pytest.raises(NotWritten, match="pool_size=2"):
            await store.append("s", said())
        with pytest.raises(EngineUnavailable, match="pool_size=2"):
            await store.history("s")
        for connection in held:
            store._pool.release(connection)
        assert (await store.append("s", said())).last == 2


@pytest.mark.parametrize(
    ("function", "error"), [("pg_cancel_backend", NotWritten), ("pg_terminate_backend", OutcomeUnknown)]
)
async def test_a_cancelled_statement_is_not_written_a_terminated_one_unknown(
    place: Place, function: str, error: type[Exception]
) -> None:
    async with open_store(place.url) as store:
        await store.append("s", said("before"))
        async with place.direct.transaction():
            await place.direct.execute("SELECT FROM recollect_sessions FOR UPDATE")
            append = asyncio.create_task(store.append("s", said("struck"), turn="t"))
            await until(lambda: _waiting(place), "the append waits for the lock")
            await place.direct.execute(
                f"SELECT {function}(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            )
            with pytest.raises(error):
                await append
        assert await texts(store, "s") == ["before"]
        await store.append("s", said("struck"), turn="t")
        assert await texts(store, "s") == ["before", "struck"]


@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_a_read_that_was_stopped_can_be_tried_again(place: Place, function: str) -> None:
    async with open_store(place.url) as store:
        await store.append("s", said("before"))
        async with place.direct.transaction():
            await place.direct.execute("LOCK TABLE recollect_messages IN ACCESS EXCLUSIVE MODE")
            read = asyncio.create_task(store.history("s"))
            await until(lambda: _waiting(place), "the read waits for the lock")
            await place.direct.execute(
                f"SELECT {function}(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            )
            with pytest.raises(EngineUnavailable):
                await read
        assert await texts(store, "s") == ["before"]


async def test_the_first_append_after_a_restart_just_works(place: Place) -> None:
    engine = started()
    try:
        async for own in places(engine):
            async with open_store(own.url) as store:
                await asyncio.gather(*(store.append(f"s{n}", said()) for n in range(4)))
                engine.kill()
                engine.restart()
                assert (await store.append("s1", said())).last == 2
                assert len(await store.history("s1")) == 2
    finally:
        engine.close()


async def test_nothing_is_kept_of_idle_connections_that_the_engine_has_ended(place: Place) -> None:
    async with open_store(place.url) as store:
        for _ in range(3):
            await store.append("s", said())
            await place.direct.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            await asyncio.sleep(0.05)  # longer than a connection is trusted without a look
            await store.history("s")
        assert isinstance(store, module.PostgresStore)
        assert len(store._pool._timelines) == 1


async def test_a_store_whose_tables_are_gone_says_so(place: Place) -> None:
    async with open_store(place.url) as store:
        await store.append("s", said())
        await place.direct.execute(f"DROP SCHEMA {place.schema} CASCADE")
        with pytest.raises(StoreReplaced):
            await store.append("s", said())
        with pytest.raises(StoreReplaced):
            await store.history("s")


async def test_a_store_swapped_behind_a_lost_connection_is_noticed(place: Place) -> None:
    async with open_store(place.url) as store:
        await store.append("s", said())
        await place.direct.execute("UPDATE recollect_meta SET identity = gen_random_uuid()")
        await place.direct.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        with pytest.raises((StoreReplaced, OutcomeUnknown)):
            await store.append("s", said())
        with pytest.raises(StoreReplaced, match="not the store that was opened"):
            await store.history("s")


async def test_errors_do_not_show_the_password() -> None:
    for url in ("postgresql://me:hunter2@127.0.0.1:1/db", "postgresql://me:hunter2@127.0.0.1:port/db"):
        with pytest.raises(Exception) as refusal:
            await open_store(url, timeout_s=1.0)
        assert "hunter2" not in str(refusal.value)
        assert type(refusal.value).__module__ == "recollect.errors"


async def _waiting(place: Place, how_many: int = 1) -> bool:
    await place.direct.execute("SELECT pg_stat_clear_snapshot()")  # a transaction keeps what it saw first
    found = await place.direct.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    )
    return bool(found >= how_many)
