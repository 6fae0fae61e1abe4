"""Taking messages back: gone for readers, their places stay, and of several takers one gets each."""

import asyncio
import random
from datetime import timedelta

import pytest

from recollect import (
    Conflict,
    Damaged,
    Message,
    NotFound,
    NotWritten,
    Receipt,
    Refused,
    Retractable,
    SessionState,
    Store,
    TurnReused,
)
from recollect.sync import open_store as open_sync
from tests.contract.conftest import Place
from tests.contract.reading import texts


def said(count: int, start: int = 1) -> list[Message]:
    return [Message("user", str(number)) for number in range(start, start + count)]


async def sequences(store: Store, session: str, **window: int) -> list[int]:
    items = await store.history(session, **window)
    assert not [item for item in items if isinstance(item.message, Damaged)]
    return [item.sequence for item in items]


async def test_a_retracted_message_is_gone_and_its_place_stays(store: Store, session: str) -> None:
    assert isinstance(store, Retractable)
    await store.append(session, said(5))
    receipt = await store.retract(session, 3)
    assert (receipt.first, receipt.last) == (6, 6)
    assert receipt.durability is store.durability
    assert await store.position(session) == 6
    assert await texts(store, session) == ["1", "2", "4", "5"]
    assert (await store.append(session, said(1, 7), expect=6)).last == 7
    assert await sequences(store, session) == [1, 2, 4, 5, 7]
    assert await store.state(session) is SessionState.LIVE


async def test_the_last_ones_are_the_last_that_are_there(store: Store, session: str) -> None:
    await store.append(session, said(10))
    await store.retract(session, 10, 8, 9, 2)
    assert await sequences(store, session, last=1) == [7]
    assert await sequences(store, session, last=3) == [5, 6, 7]
    assert await sequences(store, session, last=6) == [1, 3, 4, 5, 6, 7]
    assert await sequences(store, session, last=7) == [1, 3, 4, 5, 6, 7]
    assert await sequences(store, session, last=0) == []
    assert await sequences(store, session, after=5) == [6, 7]
    assert await sequences(store, session, after=8) == []
    assert await sequences(store, session, after=2, last=2) == [6, 7]
    assert await sequences(store, session, after=1, last=9) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("seed", range(6))
async def test_any_order_of_changes(store: Store, session: str, seed: int) -> None:
    """Against a plain list: windows of every size, after every change."""
    rng = random.Random(seed)
    live: list[int] = []
    position = 0
    for _ in range(40):
        if rng.random() < 0.4 or not live:
            count = rng.randint(1, 3)
            await store.append(session, said(count), expect=position)
            live += range(position + 1, position + count + 1)
            position += count
        else:
            taken = rng.sample(live, min(len(live), rng.choice((1, 1, 2, 4))))
            receipt = await store.retract(session, *taken, expect=position)
            live = [sequence for sequence in live if sequence not in taken]
            position += 1
            assert receipt.last == position
        last, after = rng.randint(1, 8), rng.randint(0, position + 1)
        assert await sequences(store, session) == live
        assert await sequences(store, session, last=last) == live[-last:]
        beyond = [sequence for sequence in live if sequence > after]
        assert await sequences(store, session, after=after) == beyond
        assert await sequences(store, session, after=after, last=last) == beyond[-last:]
        assert await store.position(session) == position


async def test_what_is_not_there_is_not_retracted_and_nothing_else_is(store: Store, session: str) -> None:
    with pytest.raises(NotFound, match="no message 1"):
        await store.retract(session, 1)
    assert await store.state(session) is SessionState.ABSENT
    await store.append(session, said(3))
    await store.retract(session, 2)
    for absent in ((2,), (4,), (5,), (2**53 - 1,), (1, 2), (3, 4)):
        with pytest.raises(NotFound) as error:
            await store.retract(session, *absent)
        assert isinstance(error.value, NotWritten)
    assert await texts(store, session) == ["1", "3"]
    assert await store.position(session) == 4
    await store.forget(session)
    with pytest.raises(NotFound):
        await store.retract(session, 3)
    assert await store.state(session) is SessionState.FORGOTTEN


async def test_what_is_no_sequence_is_refused(store: Store, session: str) -> None:
    await store.append(session, said(1))
    for wrong in ((), (0,), (-1,), (True,), ("1",), (1.0,), (2**70,)):
        with pytest.raises(Refused):
            await store.retract(session, *wrong)
    assert await texts(store, session) == ["1"]


async def test_expect(store: Store, session: str) -> None:
    await store.append(session, said(2))
    with pytest.raises(Conflict) as conflict:
        await store.retract(session, 2, expect=1)
    assert conflict.value.actual == 2
    await store.retract(session, 2, expect=2)
    with pytest.raises(Conflict) as conflict:
        await store.append(session, said(1), expect=2)
    assert conflict.value.actual == 3, "a job that read before the retraction notices it"


async def test_once_with_a_turn(store: Store, session: str) -> None:
    await store.append(session, said(3), turn="t")
    first = await store.retract(session, 1, 2, turn="r")
    assert await store.retract(session, 2, 1, turn="r") == first
    with pytest.raises(TurnReused):
        await store.retract(session, 3, turn="r")
    with pytest.raises(TurnReused):
        await store.retract(session, 3, turn="t")
    with pytest.raises(TurnReused):
        await store.append(session, said(1), turn="r")
    assert await texts(store, session) == ["3"]
    assert await store.position(session) == 4


async def pop(store: Store, session: str) -> str | None:
    """The last message, taken by nobody else; None if none is left."""
    while True:
        position = await store.position(session)
        items = await store.history(session, last=1)
        if not items:
            return None
        try:
            await store.retract(session, items[0].sequence, expect=position)
        except (Conflict, NotFound):
            continue
        assert isinstance(items[0].message, Message)
        return items[0].message.text


async def test_eight_pops_of_seven_items_give_each_once(place: Place, session: str) -> None:
    async with place.open() as one, place.open() as other:
        await one.append(session, said(7))
        popped = await asyncio.gather(*(pop(store, session) for store in (one, other) * 4))
        assert sorted(item for item in popped if item is not None) == [str(n) for n in range(1, 8)]
        assert popped.count(None) == 1
        assert await one.history(session) == []


async def test_without_expect_one_of_several_takes_a_message(place: Place, session: str) -> None:
    async with place.open() as one, place.open() as other:
        await one.append(session, said(1))
        outcomes = await asyncio.gather(
            *(store.retract(session, 1) for store in (one, other) * 4), return_exceptions=True
        )
        assert sum(isinstance(outcome, Receipt) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, NotFound) for outcome in outcomes) == 7


async def test_writers_beside_retractions(place: Place, session: str) -> None:
    """Sequences are never given twice, whichever process appends after another's retraction."""
    async with place.open() as one, place.open() as other:
        await one.append(session, said(1))

        async def write(store: Store) -> list[int]:
            return [(await store.append(session, said(1))).last for _ in range(15)]

        async def take(store: Store) -> list[int]:
            taken = []
            for _ in range(15):
                items = await store.history(session, last=1)
                try:
                    taken.append((await store.retract(session, *(item.sequence for item in items))).last)
                except (NotFound, Refused):
                    continue
            return taken

        given = await asyncio.gather(write(one), write(other), take(one), take(other))
        numbers = [number for part in given for number in part]
        assert len(numbers) == len(set(numbers))
        assert await one.position(session) == max(numbers) == len(numbers) + 1
        left = await sequences(one, session)
        assert len(left) == 31 - len(given[2]) - len(given[3])


async def test_everything_retracted(place: Place, session: str) -> None:
    async with place.open() as store:
        await store.append(session, said(3))
        await store.retract(session, 1, 2, 3)
        assert await store.history(session) == []
        assert await store.history(session, last=5) == []
        assert await store.state(session) is SessionState.LIVE
        assert session in [name async for name in store.sessions()]
    async with place.open() as store:
        assert await store.history(session) == []
        assert await store.position(session) == 4
        assert (await store.append(session, said(1), expect=4)).last == 5
        assert await sequences(store, session) == [5]


async def test_an_expired_session_has_nothing_to_retract(place: Place, session: str) -> None:
    async with place.open(ttl=timedelta(milliseconds=300)) as store:
        await store.append(session, said(3))
        await store.retract(session, 2)
        deadline = asyncio.get_running_loop().time() + 20
        while await store.state(session) is not SessionState.EXPIRED:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)
        with pytest.raises(NotFound):
            await store.retract(session, 1)
        assert await store.state(session) is SessionState.EXPIRED
        await store.append(session, said(2))
        assert await sequences(store, session) == [5, 6]


def test_without_async(place: Place, session: str) -> None:
    with open_sync(place.url) as store:
        store.append(session, said(3))
        receipt = store.retract(session, 1, 3, turn="t", expect=3)
        assert store.retract(session, 1, 3, turn="t") == receipt
        assert [item.sequence for item in store.history(session)] == [2]
