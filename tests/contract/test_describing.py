"""What is known of a session without its messages, and which sessions there are."""

import asyncio
from datetime import timedelta

import pytest

from recollect import Conflict, Describable, Message, Refused, SessionState, Store, TurnReused, Unreadable
from recollect.sync import open_store as open_sync
from tests.contract.conftest import Place
from tests.contract.reading import texts

SAID = [Message("user", "a")]


async def test_a_session_that_never_was(store: Store, session: str) -> None:
    assert isinstance(store, Describable)
    found = await store.describe(session)
    assert (found.state, found.position, found.created, found.updated) == (SessionState.ABSENT, 0, None, None)
    assert found.metadata == {}


async def test_times_are_the_engine_s(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "a", timestamp=5.0)])
    first = await store.describe(session)
    assert first.created is not None
    assert first.updated is not None
    assert first.created > 1_600_000_000
    assert abs(first.updated - first.created) < 60
    for change in (
        store.append(session, SAID),
        store.retract(session, 1),
        store.annotate(session, {"a": 1}),
        store.replace(session, SAID),
        store.forget(session),
    ):
        before = await store.describe(session)
        await asyncio.sleep(0.003)  # engines count in milliseconds
        await change
        after = await store.describe(session)
        assert after.created == first.created
        assert after.updated is not None
        assert before.updated is not None
        assert after.updated > before.updated
    assert (await store.describe(session)).state is SessionState.FORGOTTEN


async def test_metadata(store: Store, session: str) -> None:
    await store.append(session, SAID)
    wanted = {"title": "Xiao Li 你好", "tags": ["a", {"b": None}], "n": 2**53, "lone": "\ud800"}
    receipt = await store.annotate(session, wanted, expect=1)
    assert receipt.last == 2
    found = await store.describe(session)
    assert (found.metadata, found.position) == (wanted, 2)
    assert await texts(store, session) == ["a"]
    await store.annotate(session, {})
    assert (await store.describe(session)).metadata == {}
    await store.annotate(session, {"b": 1})
    await store.forget(session)
    assert (await store.describe(session)).metadata == {}
    await store.append(session, SAID)
    assert (await store.describe(session)).metadata == {}


async def test_a_session_of_metadata_alone(store: Store, session: str) -> None:
    await store.annotate(session, {"title": "new"}, expect=0)
    assert await store.history(session) == []
    assert await store.state(session) is SessionState.LIVE
    assert session in [name async for name in store.sessions()]
    assert (await store.append(session, SAID, expect=1)).last == 2
    assert await texts(store, session) == ["a"]


async def test_of_two_who_read_and_annotate_one_is_told(place: Place, session: str) -> None:
    async with place.open() as one, place.open() as other:
        await one.annotate(session, {"count": 0})

        async def add(store: Store) -> None:
            while True:
                found = await store.describe(session)
                try:
                    counted = {"count": found.metadata["count"] + 1}
                    await store.annotate(session, counted, expect=found.position)
                except Conflict:
                    continue
                return

        await asyncio.gather(*(add(store) for store in (one, other) * 4))
        assert (await one.describe(session)).metadata == {"count": 8}


async def test_once_with_a_turn(store: Store, session: str) -> None:
    first = await store.annotate(session, {"a": 1, "b": 2}, turn="t")
    await store.annotate(session, {"a": 2})
    assert await store.annotate(session, {"b": 2, "a": 1}, turn="t") == first
    assert (await store.describe(session)).metadata == {"a": 2}
    with pytest.raises(TurnReused):
        await store.annotate(session, {"a": 3}, turn="t")


@pytest.mark.parametrize(
    "wrong", [None, [], {"a": float("nan")}, {1: "a"}, {"a": b""}, {"a": "x" * 1_000_001}]
)
async def test_what_is_no_metadata_is_refused(store: Store, session: str, wrong: object) -> None:
    with pytest.raises(Refused):
        await store.annotate(session, wrong)  # type: ignore[arg-type]
    assert await store.state(session) is SessionState.ABSENT


async def test_metadata_expires_with_its_session(place: Place, session: str) -> None:
    async with place.open(ttl=timedelta(milliseconds=300)) as store:
        await store.append(session, SAID)
        await store.annotate(session, {"a": 1})
        deadline = asyncio.get_running_loop().time() + 20
        while await store.state(session) is not SessionState.EXPIRED:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)
        assert (await store.describe(session)).metadata == {}
        await store.append(session, SAID)
        assert (await store.describe(session)).metadata == {}
        assert [item.sequence for item in await store.history(session)] == [3]


async def test_a_note_on_a_session_that_is_over_begins_it_anew(place: Place, session: str) -> None:
    """And shows nothing until then; also where something was retracted before."""
    async with place.open(ttl=timedelta(milliseconds=300)) as store:
        await store.append(session, SAID * 2)
        await store.retract(session, 2)
        deadline = asyncio.get_running_loop().time() + 20
        while await store.state(session) is not SessionState.EXPIRED:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)
    async with place.open() as store:
        assert await store.history(session) == []
        assert await store.history(session, last=1) == []
        await store.annotate(session, {"a": 1})
        assert await store.history(session) == []
        await store.append(session, SAID)
        assert await texts(store, session) == ["a"]
        assert [item.sequence for item in await store.history(session)] == [5]


async def test_sessions_by_prefix(store: Store, session: str) -> None:
    names = [f"{session}/{tail}" for tail in ("a", "b", "*", "%", "\\", "日本")]
    for name in names:
        await store.append(name, SAID)
    await store.append(f"x{session}/a", SAID)
    assert {name async for name in store.sessions(prefix=f"{session}/")} == set(names)
    for name in names:
        assert [found async for found in store.sessions(prefix=name)] == [name]
    assert [name async for name in store.sessions(prefix=f"{session}/never")] == []
    assert set(names) < {name async for name in store.sessions(prefix="")}


async def test_sessions_in_order_of_their_last_change(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for changes in ("sqlite", "postgres"):
        monkeypatch.setattr(f"recollect.stores.{changes}.changes.NAMES_AT_ONCE", 3)
    names = [f"{session}/{number}" for number in range(5)]
    for name in names:
        await store.append(name, SAID)
        await asyncio.sleep(0.003)
    await store.append(names[1], SAID)
    await asyncio.sleep(0.003)
    await store.retract(names[0], 1)
    await asyncio.sleep(0.003)
    await store.append(names[2], SAID)
    await store.forget(names[2])
    wanted = [names[0], names[1], names[4], names[3]]
    assert [name async for name in store.sessions(prefix=f"{session}/", updated_after=0)] == wanted
    moment = (await store.describe(names[4])).updated
    assert moment is not None
    found = [name async for name in store.sessions(prefix=f"{session}/", updated_after=moment)]
    assert found == wanted[:2]
    assert [name async for name in store.sessions(updated_after=2.0**60)] == []
    for wrong in ("now", float("nan"), True):
        with pytest.raises(Refused):
            [name async for name in store.sessions(updated_after=wrong)]  # type: ignore[arg-type]
    with pytest.raises(Refused, match="prefix: text, not 5"):
        [name async for name in store.sessions(prefix=5)]  # type: ignore[arg-type]


async def test_metadata_that_was_changed_by_others_is_said(own_place: Place) -> None:
    async with own_place.open() as store:
        await store.annotate("s", {"a": 1})
        await _break_metadata(own_place)
        with pytest.raises(Unreadable, match="metadata"):
            await store.describe("s")


async def _break_metadata(place: Place) -> None:
    if place.name == "sqlite":
        import sqlite3

        connection = sqlite3.connect(place.url.removeprefix("sqlite:///"))
        connection.execute("UPDATE recollect_about SET metadata = x'7b'")
        connection.commit()
        connection.close()
    elif place.name == "redis":
        async with place.redis() as client:
            await client.hset("recollect:{ss}:c", "metadata", "{")
    else:
        import asyncpg

        server = await asyncpg.connect(place.url)
        await server.execute("UPDATE recollect_about SET metadata = '\\x7b'")
        await server.close()


def test_without_async(place: Place, session: str) -> None:
    with open_sync(place.url) as store:
        store.annotate(session, {"a": 1}, turn="t", expect=0)
        assert store.describe(session).metadata == {"a": 1}
        assert list(store.sessions(prefix=session, updated_after=0)) == [session]
