"""A batch of appends to sessions that are there: one statement, and each append fares as it would alone."""

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from recollect import Conflict, Message, Receipt, RecollectError, Store, TurnReused, open_store
from recollect.stores.postgres import schema
from recollect.stores.postgres.store import PostgresStore
from tests.contract.reading import texts
from tests.stores.postgres_place import Place
from tests.stores.test_postgres import counted_statements, said

TOGETHER = list(schema.APPEND_TOGETHER.values())


async def knowing(store: Store, names: Sequence[str]) -> None:
    """The store has written to these sessions."""
    for name in names:
        await store.append(name, said("first"))


async def gathered(*appends: Awaitable[Receipt]) -> list[Receipt | BaseException]:
    return await asyncio.gather(*appends, return_exceptions=True)


def spans(results: Sequence[Receipt | BaseException]) -> list[tuple[int, int] | type]:
    return [
        (result.first, result.last) if isinstance(result, Receipt) else type(result) for result in results
    ]


@pytest.mark.parametrize("turn", [None, "t"])
@pytest.mark.parametrize("size", [1, 3])
async def test_one_statement_stores_them_all(
    place: Place, monkeypatch: pytest.MonkeyPatch, turn: str | None, size: int
) -> None:
    names = [f"s{number}" for number in range(8)]
    async with open_store(place.url) as store:
        await knowing(store, names)
        sent = counted_statements(monkeypatch)
        content = {name: [f"{name} {number}" for number in range(size)] for name in names}
        results = await gathered(
            *(
                store.append(name, [Message("user", text) for text in content[name]], turn=turn)
                for name in names
            )
        )
        assert sent == [schema.APPEND_TOGETHER[False, size > 1, turn is not None]]
        assert spans(results) == [(2, size + 1)] * 8
        assert [result.session for result in results if isinstance(result, Receipt)] == names
        for name in names:
            assert await texts(store, name) == ["first", *content[name]]
        if turn is not None:
            again = await gathered(
                *(
                    store.append(name, [Message("user", text) for text in content[name]], turn=turn)
                    for name in names
                )
            )
            assert again == results, "a retry gets the first receipt"
            assert [await store.position(name) for name in names] == [size + 1] * 8


async def test_appends_to_one_session_keep_their_order(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(place.url) as store:
        await knowing(store, "ab")
        sent = counted_statements(monkeypatch)
        results = await gathered(
            store.append("b", said("b1")),
            store.append("a", said("a1")),
            store.append("b", [*said("b2"), *said("b3")]),
            store.append("b", said("b4")),
        )
        assert sent == [schema.APPEND_TOGETHER[False, True, False]]
        assert spans(results) == [(2, 2), (2, 2), (3, 4), (5, 5)]
        assert await texts(store, "b") == ["first", "b1", "b2", "b3", "b4"]
        assert await texts(store, "a") == ["first", "a1"]


async def test_what_is_not_plain_is_left_to_the_function(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["ahead", "conflict", "expired", "plain", "repeated", "reused", "turned"]
    async with open_store(place.url) as store:
        await knowing(store, names)
        repeated = await store.append("repeated", said("once"), turn="t")
        await store.append("reused", said("once"), turn="t")
        await place.direct.execute(
            "UPDATE recollect_sessions SET expires_at = now() - interval '1 s' WHERE name = 'expired'"
        )
        sent = counted_statements(monkeypatch)
        results = await gathered(
            store.append("ahead", said("two"), expect=1),
            store.append("conflict", said("two"), expect=9),
            store.append("expired", said("two")),
            store.append("plain", said("two")),
            store.append("repeated", said("once"), turn="t"),
            store.append("reused", said("another"), turn="t"),
            store.append("turned", said("two"), turn="t", expect=1),
        )
        assert sent == [schema.APPEND_TOGETHER[False, False, True], schema.APPEND]
        assert spans(results) == [(2, 2), Conflict, (2, 2), (2, 2), (2, 2), TurnReused, (2, 2)]
        assert results[4] == repeated
        assert await texts(store, "expired") == ["two"], "what it had before has expired"
        assert await texts(store, "reused") == ["first", "once"]


async def test_a_row_that_has_changed_on_the_disk_stops_its_own_append_only(place: Place) -> None:
    async with open_store(place.url) as store:
        await knowing(store, "abc")
        await place.direct.execute("ALTER TABLE recollect_sessions ALTER checked DROP EXPRESSION")
        await place.direct.execute("UPDATE recollect_sessions SET checked = 1 WHERE name = 'b'")
        results = await gathered(*(store.append(name, said("next")) for name in "abc"))
        assert spans([results[0], results[2]]) == [(2, 2)] * 2
        assert isinstance(results[1], RecollectError)
        assert "has changed on the disk" in str(results[1])


async def test_a_session_that_went_back_is_not_written_to_in_silence(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(place.url) as store:
        await knowing(store, "ab")
        await store.append("b", said("lost"))
        await place.direct.execute("UPDATE recollect_sessions SET last = 1 WHERE name = 'b'")
        await place.direct.execute(
            "DELETE FROM recollect_messages m USING recollect_sessions s "
            "WHERE s.id = m.session_id AND s.name = 'b' AND sequence = 2"
        )
        results = await gathered(store.append("a", said("next")), store.append("b", said("next")))
        assert spans(results) == [(2, 2), (3, 3)], "lost messages keep their sequences"
        assert "lost acknowledged messages" in caplog.text


async def test_other_settings_are_noticed(place: Place) -> None:
    async with open_store(place.url) as store:
        assert isinstance(store, PostgresStore)
        await knowing(store, "ab")
        reached = store._reach
        store._reach = type(reached)(**{**vars(reached), "fingerprint": "on on another"})
        results = await gathered(*(store.append(name, said("next")) for name in "ab"))
        assert spans(results) == [(2, 2)] * 2
        assert store._reach == reached


async def test_turns_of_batches_from_many_stores_are_stored_once(place: Place) -> None:
    stores = [await open_store(place.url) for _ in range(3)]
    for store in stores:
        await knowing(store, "ab")
    for number in range(10):
        results = await asyncio.gather(
            *(store.append(name, said(str(number)), turn=f"t{number}") for store in stores for name in "ab")
        )
        assert {(receipt.first, receipt.last) for receipt in results} == {(number + 4, number + 4)}
    for name in "ab":
        assert await texts(stores[0], name) == ["first"] * 3 + [str(number) for number in range(10)]
    await asyncio.gather(*(store.close() for store in stores))


async def test_turns_of_batches_are_counted_and_bounded(place: Place) -> None:
    async with open_store(place.url, turns_kept=10) as store:
        await knowing(store, "ab")
        for number in range(60):
            await gathered(*(store.append(name, said(str(number)), turn=str(number)) for name in "ab"))
        for kept, counted in await place.direct.fetch(
            "SELECT (SELECT count(*) FROM recollect_turns t WHERE t.session_id = s.id), s.turns "
            "FROM recollect_sessions s"
        ):
            assert 10 <= kept == counted <= 10 + 1 + 16


@pytest.mark.parametrize("refresh", ["append", "never"])
async def test_a_batch_restarts_the_time_to_live_or_keeps_it(place: Place, refresh: Any) -> None:
    when = "SELECT expires_at FROM recollect_sessions ORDER BY name"
    async with open_store(place.url, ttl=timedelta(hours=1), refresh=refresh) as store:
        await knowing(store, "ab")
        before = await place.direct.fetch(when)
        await gathered(*(store.append(name, said("next")) for name in "ab"))
        after = await place.direct.fetch(when)
    assert len(after) == 2
    if refresh == "never":
        assert after == before
    else:
        assert all(old[0] < new[0] for old, new in zip(before, after, strict=True))


async def test_batches_are_not_planned_again_and_again(place: Place) -> None:
    """Whatever their size: a plan costs more than what it plans."""
    async with open_store(place.url, pool_size=1) as store:
        assert isinstance(store, PostgresStore)
        names = [f"s{number}" for number in range(12)]
        for _ in range(4):
            for size in (2, 5, 12):
                await gathered(*(store.append(name, said()) for name in names[:size]))
                await gathered(*(store.append(f"new{name}", said()) for name in names[:size]))
        counts = await store._read(
            "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements WHERE statement = ANY($1)",
            [schema.APPEND, *TOGETHER],
        )
        assert counts
        for statement, generic, custom in counts:
            assert custom <= 5, (statement, generic, custom)


async def test_a_row_that_was_seen_is_not_believed_once_it_has_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends name a session's row by number, as long as it is as it was."""
    async with open_store(place.url, pool_size=1) as store, open_store(place.url) as other:
        for _ in range(3):
            await store.append("s", said("here"))
        sent = counted_statements(monkeypatch)
        await store.append("s", said("seen"))
        assert [item.sequence for item in await store.history("s", last=2)] == [3, 4]
        assert sent == [schema.APPEND_SEEN[False, False], schema.HISTORY]
        await other.append("s", said("there"))
        assert (await store.append("s", said("after it"))).last == 6
        with pytest.raises(Conflict):
            await store.append("s", said("conflict"), expect=5)
        await other.retract("s", 6)
        assert (await store.append("s", said("after the mark"))).last == 8
        assert [item.sequence for item in await store.history("s", last=2)] == [5, 8]
        await other.forget("s")
        assert (await store.append("s", said("after the end"))).last == 9
        assert [item.sequence for item in await store.history("s", last=2)] == [9]
        await other.forget("s", erase=True)
        await other.append("t", said("another session"))
        assert await texts(other, "t") == ["another session"]


async def test_a_batch_of_rows_that_were_seen_leaves_out_what_has_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{number}" for number in range(8)]
    async with open_store(place.url, pool_size=1) as store, open_store(place.url) as other:
        await knowing(store, names)
        sent = counted_statements(monkeypatch)
        for number, text in enumerate(("seen", "by number"), 2):
            results = await gathered(*(store.append(name, said(text)) for name in names))
            assert spans(results) == [(number, number)] * 8
        assert sent == [
            schema.APPEND_TOGETHER[False, False, False],
            schema.APPEND_TOGETHER[True, False, False],
        ]
        await other.forget("s3")
        results = await gathered(*(store.append(name, said("after"), turn="t") for name in names))
        assert spans(results) == [(4, 4)] * 8
        for name in names:
            expected = ["after"] if name == "s3" else ["first", "seen", "by number", "after"]
            assert await texts(store, name) == expected


async def test_a_row_that_has_changed_on_the_disk_is_not_believed_though_it_was_seen(place: Place) -> None:
    async with open_store(place.url) as store:
        for _ in range(3):
            await store.append("s", said("here"))
        await place.direct.execute(
            "ALTER TABLE recollect_sessions ALTER COLUMN checked DROP EXPRESSION;"
            "UPDATE recollect_sessions SET floor = 2"
        )
        with pytest.raises(RecollectError, match="changed on the disk"):
            await store.history("s", last=2)
        with pytest.raises(RecollectError, match="changed on the disk"):
            await store.append("s", said("on top"))


async def test_a_store_with_a_time_to_live_gives_it_to_a_session_that_had_none(place: Place) -> None:
    async with open_store(place.url) as store, open_store(place.url, ttl=timedelta(hours=1)) as mortal:
        await mortal.append("s", said("for an hour"))
        await store.append("s", said("for ever"))
        assert len(await mortal.history("s", last=9)) == 2
        await mortal.append("s", said("for an hour"))
        assert await place.direct.fetchval("SELECT expires_at FROM recollect_sessions") is not None
