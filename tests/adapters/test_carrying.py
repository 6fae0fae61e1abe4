"""A change is carried through: once, whole, and also when its caller is gone."""

import asyncio
from typing import Any, cast

import pytest

from recollect import Message, NotWritten, OutcomeUnknown, Refused, Store
from recollect.adapters import carrying
from recollect.adapters.carrying import CALL_AGAIN, LOOK_FIRST, carried, pop_last
from tests.adapters.unsteady import LOST_AFTER, LOST_BEFORE, REFUSED, Unsteady


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,) * len(carrying.PAUSES_S))


async def _append(store: Any, session: str, text: str) -> Any:
    message = Message("user", text)
    return await carried(lambda turn: store.append(session, [message], turn=turn), LOOK_FIRST)


async def _texts(store: Store, session: str) -> list[str]:
    return [cast(Message, item.message).text for item in await store.history(session)]


@pytest.mark.parametrize(
    "troubles",
    [
        (LOST_AFTER,),
        (LOST_BEFORE,),
        (LOST_AFTER, LOST_AFTER, LOST_BEFORE),
        (LOST_AFTER, REFUSED, LOST_AFTER),
        (LOST_BEFORE, REFUSED, REFUSED),
    ],
)
async def test_what_got_lost_on_the_way_is_stored_once(
    store: Store, session: str, troubles: tuple[str, ...]
) -> None:
    unsteady = Unsteady(store, *troubles)
    await _append(unsteady, session, "hello")
    assert not unsteady.troubles
    assert await _texts(store, session) == ["hello"]


async def test_a_first_refusal_is_told_as_it_is(store: Store, session: str) -> None:
    with pytest.raises(NotWritten):
        await _append(Unsteady(store, REFUSED), session, "hello")
    assert await _texts(store, session) == []


async def test_an_unknown_outcome_stays_unknown_when_retries_are_refused(store: Store, session: str) -> None:
    """`NotWritten` would invite the caller to call again, and then there were two."""
    troubles = [LOST_AFTER, *[REFUSED] * len(carrying.PAUSES_S)]
    with pytest.raises(OutcomeUnknown) as told:
        await _append(Unsteady(store, *troubles), session, "hello")
    assert str(told.value) == f"the connection broke; {LOOK_FIRST}"
    assert await _texts(store, session) == ["hello"]


async def test_what_cannot_be_stored_is_not_tried_again(store: Store, session: str) -> None:
    calls = 0

    async def refused(turn: str) -> None:
        nonlocal calls
        calls += 1
        raise Refused("no")

    with pytest.raises(Refused):
        await carried(refused, CALL_AGAIN)
    assert calls == 1


async def test_a_cancelled_caller_does_not_take_the_change_with_it(store: Store, session: str) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(turn: str) -> None:
        begun.set()
        await go_on.wait()
        await store.append(session, [Message("user", "hello")], turn=turn)

    caller = asyncio.create_task(carried(slowly, CALL_AGAIN))
    await begun.wait()
    caller.cancel()
    await asyncio.sleep(0)
    caller.cancel()  # a second time: some callers insist
    await asyncio.sleep(0)
    assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await _texts(store, session) == ["hello"]


async def test_many_pops_take_each_message_once(store: Store, session: str) -> None:
    await store.append(session, [Message("user", str(number)) for number in range(7)])
    taken = await asyncio.gather(*[pop_last(store, session) for _ in range(8)])
    assert sorted(message.text for message in taken if message) == [str(number) for number in range(7)]
    assert taken.count(None) == 1
    assert await _texts(store, session) == []


@pytest.mark.parametrize("trouble", [LOST_AFTER, LOST_BEFORE])
async def test_a_pop_whose_answer_is_lost_takes_one_message(store: Store, session: str, trouble: str) -> None:
    await store.append(session, [Message("user", "a"), Message("user", "b")])
    taken = await pop_last(cast(Store, Unsteady(store, trouble)), session)
    assert taken is not None
    assert taken.text == "b"
    assert await _texts(store, session) == ["a"]
