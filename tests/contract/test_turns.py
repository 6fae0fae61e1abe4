"""A turn is in memory whole or not at all, once, and only where the caller expected it."""

import asyncio
import uuid

import pytest

from recollect import Conflict, Durability, Message, Receipt, Refused, Store, open_store
from tests.contract.conftest import Place
from tests.contract.reading import texts
from tests.disks import BEST


async def test_what_was_appended_is_read_back_as_it_was(place: Place, store: Store, session: str) -> None:
    said = [
        Message("user", "I am Xiao Li", metadata={"lang": "zh", "n": [1, 2.5, None, True]}),
        Message("assistant", [{"type": "tool_call", "name": "look_up", "arguments": {"id": 7}}]),
    ]
    receipt = await store.append(session, said)
    found = await store.history(session)
    assert [item.message for item in found] == said
    assert [item.sequence for item in found] == [1, 2]
    given = BEST if place.name == "sqlite" else Durability.FSYNCED
    assert receipt == Receipt(session, 1, 2, given)


async def test_sequences_go_on_without_gaps(store: Store, session: str) -> None:
    for size in (1, 3, 2):
        await store.append(session, [Message("user", "x")] * size)
    assert [item.sequence for item in await store.history(session)] == [1, 2, 3, 4, 5, 6]


async def test_a_retry_with_the_same_turn_stores_nothing_new(store: Store, session: str) -> None:
    turn = str(uuid.uuid4())
    first = await store.append(session, [Message("user", "a"), Message("assistant", "b")], turn=turn)
    await store.append(session, [Message("user", "c")])
    again = await store.append(session, [Message("user", "a"), Message("assistant", "b")], turn=turn)
    assert again == first
    assert await texts(store, session) == ["a", "b", "c"]


async def test_concurrent_retries_of_one_turn_store_it_once(store: Store, session: str) -> None:
    receipts = await asyncio.gather(
        *(store.append(session, [Message("user", "once")], turn="t1") for _ in range(20))
    )
    assert set(receipts) == {receipts[0]}
    assert await texts(store, session) == ["once"]


async def test_equal_turn_ids_of_two_sessions_do_not_meet(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "mine")], turn="t1")
    await store.append(f"{session}-other", [Message("user", "yours")], turn="t1")
    assert await texts(store, session) == ["mine"]
    assert await texts(store, f"{session}-other") == ["yours"]


async def test_turn_ids_are_remembered_as_long_as_promised_and_not_for_ever(
    place: Place, session: str
) -> None:
    async with place.open(turns_kept=3) as store:
        for number in range(40):
            await store.append(session, [Message("user", str(number))], turn=f"t{number}")
        for number in (37, 38, 39):
            await store.append(session, [Message("user", str(number))], turn=f"t{number}")
        assert len(await store.history(session)) == 40
        await store.append(session, [Message("user", "again")], turn="t0")
        assert len(await store.history(session)) == 41


async def test_a_retry_after_forget_does_not_bring_it_back(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "forget me")], turn="t1")
    await store.forget(session)
    await store.append(session, [Message("user", "forget me")], turn="t1")
    assert await store.history(session) == []


async def test_expect_lets_exactly_one_of_many_through(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "x")])

    async def summarise(number: int) -> Receipt | Conflict:
        try:
            return await store.append(session, [Message("system", f"summary {number}")], expect=1)
        except Conflict as conflict:
            return conflict

    outcomes = await asyncio.gather(*(summarise(number) for number in range(10)))
    assert sum(isinstance(outcome, Receipt) for outcome in outcomes) == 1
    conflict = next(outcome for outcome in outcomes if isinstance(outcome, Conflict))
    assert (conflict.expected, conflict.actual) == (1, 2)
    assert len(await store.history(session)) == 2


async def test_expect_counts_from_zero_and_goes_on_after_forget(store: Store, session: str) -> None:
    assert (await store.append(session, [Message("user", "x")], expect=0)).last == 1
    await store.forget(session)
    with pytest.raises(Conflict):
        await store.append(session, [Message("user", "x")], expect=0)
    assert (await store.append(session, [Message("user", "x")], expect=1)).first == 2


async def test_a_retried_compare_and_set_is_not_a_conflict(store: Store, session: str) -> None:
    first = await store.append(session, [Message("system", "summary")], turn="t1", expect=0)
    assert await store.append(session, [Message("system", "summary")], turn="t1", expect=0) == first


async def test_a_conflict_does_not_disturb_appends_in_the_same_batch(store: Store, session: str) -> None:
    outcomes = await asyncio.gather(
        store.append(session, [Message("user", "a")]),
        store.append(session, [Message("user", "b")], expect=77),
        store.append(f"{session}-other", [Message("user", "c")]),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], Conflict)
    assert await texts(store, session) == ["a"]
    assert await texts(store, f"{session}-other") == ["c"]


@pytest.mark.parametrize(
    "bad",
    [
        {"messages": []},
        {"messages": Message("user", "not a list")},
        {"messages": ["text"]},
        {"expect": -1},
        {"expect": True},
        {"turn": ""},
        {"turn": "t" * 2000},
    ],
    ids=lambda bad: next(iter(bad)) + "=" + repr(next(iter(bad.values())))[:20],
)
async def test_bad_arguments_are_refused_before_anything_is_written(
    store: Store, session: str, bad: dict[str, object]
) -> None:
    arguments: dict[str, object] = {"messages": [Message("user", "x")], **bad}
    with pytest.raises(Refused):
        await store.append(session, **arguments)  # type: ignore[arg-type]
    assert await store.history(session) == []


async def test_a_second_store_on_the_same_engine_sees_the_same_memory(place: Place, session: str) -> None:
    async with open_store(place.url) as one, open_store(place.url) as other:
        assert one.identity == other.identity
        await one.append(session, [Message("user", "a")])
        await other.append(session, [Message("user", "b")])
        await one.append(session, [Message("user", "c")])
        assert await texts(one, session) == await texts(other, session) == ["a", "b", "c"]


async def test_forget_by_another_store_does_not_make_this_one_reuse_sequences(
    place: Place, session: str
) -> None:
    async with open_store(place.url) as one, open_store(place.url) as other:
        await one.append(session, [Message("user", "a")])
        await one.append(session, [Message("user", "b")])
        await other.append(session, [Message("user", "c")])
        await other.forget(session)
        assert (await one.append(session, [Message("user", "d")])).first == 4
        assert (await one.append(session, [Message("user", "e")])).first == 5
