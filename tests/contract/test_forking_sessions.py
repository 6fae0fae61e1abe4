"""Copies of sessions, appends to several at once, and messages by their id."""

import asyncio

import pytest

from recollect import (
    Conflict,
    Damaged,
    Findable,
    Forkable,
    Message,
    NotFound,
    Receipt,
    Refused,
    SessionState,
    Spanning,
    Store,
    TurnReused,
)
from recollect.message import decode
from recollect.sync import open_store as open_sync
from tests.contract.conftest import Place
from tests.contract.reading import texts


def said(*words: str) -> list[Message]:
    return [Message("user", word) for word in words]


# ---- fork


async def test_a_fork_is_a_copy_that_lives_on_its_own(place: Place, store: Store, session: str) -> None:
    assert isinstance(store, Forkable)
    new = place.beside(session, "new")
    await store.append(session, said("a", "b", "c"))
    await store.retract(session, 2)
    await store.annotate(session, {"title": "t"})
    receipt = await store.fork(session, new)
    assert (receipt.session, receipt.first, receipt.last) == (new, 5, 5)
    assert await store.history(new) == await store.history(session)
    assert (await store.describe(new)).metadata == {"title": "t"}
    await store.forget(session)
    assert await texts(store, new) == ["a", "c"]
    assert [item.sequence for item in await store.history(new, last=1)] == [3]
    assert (await store.append(new, said("d"), expect=5)).last == 6
    assert await store.history(session) == []
    assert await store.position(session) == 5


@pytest.mark.parametrize(
    ("upto", "wanted", "position"),
    [
        (0, [], 1),
        (1, [1], 1),
        (2, [1], 2),
        (3, [1], 3),
        (4, [1, 4], 4),
        (5, [1, 4], 5),
        (6, [1, 4, 6], 6),
        (99, [1, 4, 6], 6),
    ],
)
async def test_up_to_a_sequence(
    place: Place, store: Store, session: str, upto: int, wanted: list[int], position: int
) -> None:
    new = place.beside(session, "new")
    await store.append(session, said("a", "b", "c", "d"))
    await store.retract(session, 2, 3)
    await store.append(session, said("e"))
    assert (await store.fork(session, new, upto=upto)).last == position
    assert [item.sequence for item in await store.history(new)] == wanted
    assert await store.position(new) == position
    assert (await store.append(new, said("f"), expect=position)).last == position + 1
    assert [item.sequence for item in await store.history(new, last=1)] == [position + 1]


async def test_of_a_session_that_goes_on_after_a_forget(place: Place, store: Store, session: str) -> None:
    await store.append(session, said("a", "b"))
    await store.forget(session)
    await store.append(session, said("c", "d"))
    await store.fork(session, place.beside(session, "1"), upto=3)
    await store.fork(session, place.beside(session, "2"), upto=1)
    assert [item.sequence for item in await store.history(place.beside(session, "1"))] == [3]
    assert await store.history(place.beside(session, "2")) == []
    assert await store.state(place.beside(session, "2")) is SessionState.LIVE


async def test_what_cannot_be_forked(place: Place, store: Store, session: str) -> None:
    new = place.beside(session, "new")
    with pytest.raises(NotFound):
        await store.fork(session, new)
    await store.append(session, said("a"))
    with pytest.raises(Refused):
        await store.fork(session, session)
    with pytest.raises(Conflict) as conflict:
        await store.fork(session, new, expect=0)
    assert conflict.value.session == session
    assert await store.state(new) is SessionState.ABSENT
    await store.append(new, said("b"))
    with pytest.raises(Conflict) as conflict:
        await store.fork(session, new)
    assert (conflict.value.session, conflict.value.actual) == (new, 1)
    await store.forget(session)
    with pytest.raises(NotFound):
        await store.fork(session, place.beside(session, "other"))


async def test_a_fork_once_with_a_turn(place: Place, store: Store, session: str) -> None:
    new = place.beside(session, "new")
    await store.append(session, said("a", "b"))
    first = await store.fork(session, new, turn="t", expect=2)
    await store.append(session, said("c"))
    await store.append(new, said("d"))
    assert await store.fork(session, new, turn="t", expect=2) == first
    with pytest.raises(TurnReused):
        await store.fork(session, new, upto=1, turn="t")
    await store.forget(session)
    assert await store.fork(session, new, turn="t", expect=2) == first
    assert await texts(store, new) == ["a", "b", "d"]


async def test_a_large_fork(place: Place, store: Store, session: str) -> None:
    await store.append(session, [Message("user", str(n)) for n in range(3_500)])
    await store.fork(session, place.beside(session, "new"), upto=3_400)
    assert await texts(store, place.beside(session, "new")) == [str(n) for n in range(3_400)]


async def test_a_message_that_moves_while_it_is_looked_for_is_found(
    place: Place, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is always there: the session is compacted while it is read portion by portion."""
    kept = Message("user", "kept", id="1")
    others = [Message("user", f"1 {number}", id=f"other {number}") for number in range(250)]
    with open_sync(place.url) as other:
        moves = [lambda: other.replace(session, [*others, kept])]

        def decoding(record: bytes) -> Message | Damaged:
            while moves:
                moves.pop()()
            return decode(record)

        async with place.open() as store:
            await store.append(session, [kept, *others])
            monkeypatch.setattr("recollect.changing.decode", decoding)
            found = await store.find(session, "1")
            assert await store.find(session, "2") is None
    assert moves == []
    assert found is not None
    assert isinstance(found.message, Message)
    assert found.message.text == "kept"


# ---- several sessions at once


async def test_several_sessions_in_one_step(place: Place, store: Store, session: str) -> None:
    assert isinstance(store, Spanning)
    one, other = (place.beside(session, number) for number in (1, 2))
    await store.append(other, said("before"))
    receipts = await store.append_many({other: said("a", "b"), one: said("c")})
    assert list(receipts) == [other, one]
    assert (receipts[other].first, receipts[other].last) == (2, 3)
    assert (receipts[one].session, receipts[one].last) == (one, 1)
    assert await texts(store, other) == ["before", "a", "b"]
    assert await texts(store, one) == ["c"]


async def test_all_or_none(place: Place, store: Store, session: str) -> None:
    names = [place.beside(session, number) for number in range(4)]
    await store.append(names[2], said("before"), turn="t")
    turns = {name: said("x") for name in names}
    with pytest.raises(Conflict) as conflict:
        await store.append_many(turns, expect={names[0]: 0, names[2]: 0})
    assert conflict.value.session == names[2]
    with pytest.raises(TurnReused):
        await store.append_many(turns, turn="t")
    with pytest.raises(Refused):
        await store.append_many({**turns, names[3]: [Message("user", [float("nan")])]})
    with pytest.raises(Refused):
        await store.append_many(turns, expect={"another": 0})
    with pytest.raises(Refused):
        await store.append_many({})
    with pytest.raises(Refused, match="more than 10,000 messages or 268,435,456 bytes at once"):
        await store.append_many({name: said("x") * 2_501 for name in names})
    for name in (names[0], names[1], names[3]):
        assert await store.history(name) == []
        assert await store.position(name) == 0
    assert await texts(store, names[2]) == ["before"]
    receipts = await store.append_many(turns, expect={names[0]: 0, names[2]: 1})
    assert [receipts[name].last for name in names] == [1, 1, 2, 1]


async def test_many_once_with_a_turn(place: Place, store: Store, session: str) -> None:
    names = [place.beside(session, number) for number in range(3)]
    first = await store.append_many({name: said("x") for name in names}, turn="t")
    assert await store.append_many({name: said("x") for name in names}, turn="t") == first
    with pytest.raises(TurnReused):
        await store.append_many({names[0]: said("x"), names[1]: said("y")}, turn="t")
    for name in names:
        assert await texts(store, name) == ["x"]


async def test_many_in_any_order_do_not_wait_for_each_other(place: Place, session: str) -> None:
    names = [place.beside(session, number) for number in range(6)]
    async with place.open() as one, place.open() as other:
        outcomes = await asyncio.gather(
            *(one.append_many({name: said("x") for name in names}) for _ in range(10)),
            *(other.append_many({name: said("x") for name in reversed(names)}) for _ in range(10)),
            *(one.append(name, said("x")) for name in names),
        )
        assert all(isinstance(outcome, dict | Receipt) for outcome in outcomes)
        for name in names:
            assert len(await texts(one, name)) == 21


# ---- find


async def test_a_message_by_its_id(place: Place, store: Store, session: str) -> None:
    assert isinstance(store, Findable)
    messages = [Message("user", str(n), id=f"id-{n}") for n in range(250)]
    messages[7] = Message("user", "id-8 is mentioned, and id-249", id="id-7")
    await store.append(session, messages)
    for number in (0, 7, 8, 249):
        found = await store.find(session, f"id-{number}")
        assert found is not None
        assert (found.sequence, found.message) == (number + 1, messages[number])
    assert await store.find(session, "id-250") is None
    assert await store.find(place.beside(session, "other"), "id-1") is None
    await store.retract(session, 9)
    assert await store.find(session, "id-8") is None
    await store.forget(session)
    assert await store.find(session, "id-7") is None


async def test_the_latest_of_several_and_among_many_that_mention_it(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "first", id="same")])
    await store.append(session, [Message("user", "same")] * 230)
    found = await store.find(session, "same")
    assert found is not None
    assert found.sequence == 1
    await store.append(session, [Message("user", "second", id="same")])
    found = await store.find(session, "same")
    assert found is not None
    assert found.sequence == 232


@pytest.mark.parametrize("name", ["", '"', "a/b", "\\", "日本", "\ud800", "lifted-x", "a b", "{}", "0", "\0"])
async def test_any_id_is_found(store: Store, session: str, name: str) -> None:
    await store.append(session, [Message("user", "a", id=name), Message("user", "b", id=f"{name}-")])
    await store.append(session, [Message("user", "c")] * 120)
    found = await store.find(session, name)
    assert found is not None
    assert found.sequence == 1


def test_without_async(place: Place, session: str) -> None:
    with open_sync(place.url) as store:
        store.append_many({session: [Message("user", "a", id="x")]}, turn="t", expect={session: 0})
        store.fork(session, place.beside(session, "new"), upto=1, turn="t", expect=1)
        found = store.find(place.beside(session, "new"), "x")
        assert found is not None
        assert found.sequence == 1


async def test_dictionaries_are_messages(store: Store, session: str) -> None:
    plain: dict[str, object] = {"role": "user", "content": "a"}
    human: dict[str, object] = {"type": "human", "data": {"content": "b", "type": "human"}}
    receipt = await store.append(session, [plain, human, Message("user", "c")], turn="t")
    assert await store.append(session, [plain, human, Message("user", "c")], turn="t") == receipt
    assert await texts(store, session) == ["a", "b", "c"]
    [first, second, _] = await store.history(session)
    assert isinstance(first.message, Message)
    assert isinstance(second.message, Message)
    assert (first.message.to_openai(), second.message.to_langchain()) == (plain, human)
    await store.replace(session, [plain])
    await store.append_many({session: [human]})
    assert await texts(store, session) == ["a", "b"]
    with pytest.raises(Refused, match="dictionaries"):
        await store.append(session, ["text"])  # type: ignore[list-item]
