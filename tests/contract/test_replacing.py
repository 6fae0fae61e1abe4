"""Other messages in the place of all: compaction, redaction, setting; in one step."""

import asyncio
from datetime import timedelta

import pytest

from recollect import Conflict, Message, Receipt, Refused, Replaceable, SessionState, Store, TurnReused
from recollect.sync import open_store as open_sync
from tests.contract.conftest import Place
from tests.contract.reading import texts


def said(*words: str) -> list[Message]:
    return [Message("user", word) for word in words]


async def test_what_was_there_is_replaced(store: Store, session: str) -> None:
    assert isinstance(store, Replaceable)
    await store.append(session, said("a", "b", "c"))
    receipt = await store.replace(session, said("summary", "c"))
    assert (receipt.first, receipt.last) == (4, 5)
    assert receipt.durability is store.durability
    assert await texts(store, session) == ["summary", "c"]
    assert await texts(store, session, last=1) == ["c"]
    assert await texts(store, session, after=4) == ["c"]
    assert (await store.append(session, said("d"), expect=5)).last == 6
    assert await texts(store, session) == ["summary", "c", "d"]


async def test_a_new_session_and_no_messages(store: Store, session: str) -> None:
    assert (await store.replace(session, said("a"), expect=0)).first == 1
    await store.annotate(session, {"kept": True})
    empty = await store.replace(session, [])
    assert (empty.first, empty.last) == (3, 3)
    assert await store.history(session) == []
    assert await store.state(session) is SessionState.LIVE
    assert (await store.describe(session)).metadata == {"kept": True}
    assert await store.position(session) == 3
    await store.append(session, said("b"), expect=3)
    assert await texts(store, session) == ["b"]


async def test_after_retractions(store: Store, session: str) -> None:
    await store.append(session, said("a", "b", "c"))
    await store.retract(session, 2)
    await store.replace(session, said("x", "y", "z"))
    assert await texts(store, session) == ["x", "y", "z"]
    assert [item.sequence for item in await store.history(session, last=2)] == [6, 7]
    await store.retract(session, 6)
    assert await texts(store, session) == ["x", "z"]


async def test_a_message_that_came_meanwhile_is_not_written_over(store: Store, session: str) -> None:
    await store.append(session, said("a"))
    await store.append(session, said("b"))
    with pytest.raises(Conflict) as conflict:
        await store.replace(session, said("summary of a"), expect=1)
    assert conflict.value.actual == 2
    await store.retract(session, 1)
    with pytest.raises(Conflict):
        await store.replace(session, said("a", "b"), expect=2)
    assert await texts(store, session) == ["b"]


async def test_once_with_a_turn(store: Store, session: str) -> None:
    await store.append(session, said("a"))
    first = await store.replace(session, said("b"), turn="t")
    await store.append(session, said("c"))
    assert await store.replace(session, said("b"), turn="t", expect=77) == first
    assert await texts(store, session) == ["b", "c"]
    with pytest.raises(TurnReused):
        await store.replace(session, said("d"), turn="t")
    with pytest.raises(TurnReused):
        await store.append(session, said("b"), turn="t")


async def test_readers_see_the_old_or_the_new(place: Place, session: str) -> None:
    async with place.open() as store, place.open() as reader:
        await store.append(session, said(*(["0"] * 30)))
        done = asyncio.Event()

        async def read() -> int:
            count = 0
            while not done.is_set():
                seen = await texts(reader, session)
                assert len(seen) == 30
                assert len(set(seen)) == 1
                count += 1
            return count

        reading = asyncio.create_task(read())
        for number in range(1, 20):
            await store.replace(session, said(*([str(number)] * 30)))
        done.set()
        assert await reading > 0


async def test_of_concurrent_jobs_one_wins(place: Place, session: str) -> None:
    async with place.open() as one, place.open() as other:
        await one.append(session, said("a"))
        outcomes = await asyncio.gather(
            *(store.replace(session, said(f"{n}"), expect=1) for n, store in enumerate((one, other) * 4)),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, Receipt) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 7


async def test_time_to_live(place: Place, session: str) -> None:
    async with place.open(ttl=timedelta(milliseconds=400)) as store:
        await store.replace(session, said("a"))
        deadline = asyncio.get_running_loop().time() + 20
        while await store.history(session):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)
        assert await store.state(session) is SessionState.EXPIRED
        await store.replace(session, said("b"))
        assert await texts(store, session) == ["b"]
        assert await store.position(session) == 2
    async with place.open() as store:
        await store.replace(session, said("c"))
        await asyncio.sleep(0.5)  # past what it would have lived: absence cannot be polled for
        assert await texts(store, session) == ["c"]


async def test_large_sessions_are_freed(place: Place, session: str) -> None:
    async with place.open() as store:
        for _ in range(3):
            await store.append(session, [Message("user", "x")] * 5_000)
        await store.replace(session, said("small"))
        assert await texts(store, session) == ["small"]
        await store.sweep()
        assert await texts(store, session) == ["small"]


async def test_what_cannot_be_kept_is_refused_before_anything_is_removed(store: Store, session: str) -> None:
    await store.append(session, said("a"))
    with pytest.raises(Refused):
        await store.replace(session, [Message("user", [float("nan")])])
    assert await texts(store, session) == ["a"]


def test_without_async(place: Place, session: str) -> None:
    with open_sync(place.url) as store:
        store.append(session, said("a"))
        store.replace(session, said("b"), turn="t", expect=1)
        assert [item.sequence for item in store.history(session)] == [2]
