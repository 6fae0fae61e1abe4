"""Where a session is: `position`, and `forget` of a session that is where the caller knows it to be."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from operator import attrgetter
from typing import Any

import asyncpg
import pytest

from recollect import Conflict, Message, NotWritten, Positioned, Refused, SessionState, Store
from recollect.sync import open_store as open_sync
from tests.contract.conftest import Place
from tests.contract.reading import texts


async def test_the_position_is_the_last_sequence_given(store: Store, session: str) -> None:
    assert isinstance(store, Positioned)
    assert await store.position(session) == 0
    receipt = await store.append(session, [Message("user", "a"), Message("user", "b")])
    assert await store.position(session) == receipt.last == 2


async def test_the_position_survives_forgetting_and_can_be_expected(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "a"), Message("user", "b")])
    await store.forget(session)
    assert await store.history(session) == []
    assert await store.position(session) == 2
    with pytest.raises(Conflict) as conflict:
        await store.append(session, [Message("user", "c")], expect=0)
    assert conflict.value.actual == 2
    assert (await store.append(session, [Message("user", "c")], expect=2)).first == 3


async def test_the_position_survives_expiry(place: Place, session: str) -> None:
    async with place.open(ttl=timedelta(milliseconds=300)) as store:
        await store.append(session, [Message("user", "a")])
        deadline = asyncio.get_running_loop().time() + 20
        while await store.state(session) is not SessionState.EXPIRED:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)
        assert await store.position(session) == 1
        await store.sweep()
        assert await store.position(session) == 1


async def test_forget_with_expect(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "a")])
    for wrong in (0, 2, 2**70):
        with pytest.raises(Conflict) as conflict:
            await store.forget(session, expect=wrong)
        assert (conflict.value.expected, conflict.value.actual) == (wrong, 1)
    assert await texts(store, session) == ["a"]
    await store.forget(session, expect=1)
    assert await store.history(session) == []
    await store.forget(session, expect=1)
    await store.forget(f"{session}-never", expect=0)
    with pytest.raises(Conflict):
        await store.forget(f"{session}-never", expect=1)
    assert await store.state(f"{session}-never") is SessionState.ABSENT
    with pytest.raises(Refused):
        await store.forget(session, expect=-1)


async def test_a_message_that_came_meanwhile_is_not_forgotten(store: Store, session: str) -> None:
    """Of a forget and an append that expect the same position, the forget may go first, or not happen at all."""
    for round_ in range(20):
        position = await store.position(session)
        forgot, appended = await asyncio.gather(
            store.forget(session, expect=position),
            store.append(session, [Message("user", str(round_))], expect=position),
            return_exceptions=True,
        )
        assert not isinstance(appended, BaseException)
        assert forgot is None or isinstance(forgot, Conflict)
        assert (await texts(store, session))[-1] == str(round_)


def test_without_async(place: Place, session: str) -> None:
    with open_sync(place.url) as store:
        store.append(session, [Message("user", "a")])
        assert store.position(session) == 1
        with pytest.raises(Conflict):
            store.forget(session, expect=0)
        store.forget(session, expect=1)
        assert store.position(session) == 1


CHANGES: dict[str, Callable[[Store, str, int, str], Awaitable[object]]] = {
    "append": lambda store, session, seen, _: store.append(session, [Message("user", "d")], expect=seen),
    "append_many": lambda store, session, seen, _: store.append_many(
        {session: [Message("user", "d")]}, expect={session: seen}
    ),
    "replace": lambda store, session, seen, _: store.replace(session, [Message("user", "d")], expect=seen),
    "retract": lambda store, session, seen, _: store.retract(session, 1, expect=seen),
    "annotate": lambda store, session, seen, _: store.annotate(session, {"a": 1}, expect=seen),
    "forget": lambda store, session, seen, _: store.forget(session, expect=seen),
    "fork": lambda store, session, seen, copy: store.fork(session, copy, expect=seen),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_was_expected_before_a_loss_is_a_conflict_once(
    place: Place, session: str, change: str
) -> None:
    """Somebody who was told less has written since, below what this store was told: that must not be overwritten."""
    if place.name == "sqlite":
        pytest.skip("a file that loses what was acknowledged takes its process with it")
    async with place.open() as store, place.open() as other:
        await store.append(session, [Message("user", "a"), Message("user", "b"), Message("user", "c")])
        await _lose(place, session, after=1)
        assert (await other.append(session, [Message("user", "theirs")])).first == 2
        seen, copy = await store.position(session), place.beside(session, "copy")
        with pytest.raises(Conflict):
            await CHANGES[change](store, session, seen, copy)
        found = [
            item.message.text for item in await store.history(session) if isinstance(item.message, Message)
        ]
        assert found == ["a", "theirs"]
        await CHANGES[change](store, session, await store.position(session), copy)
        assert (await other.append(session, [Message("user", "e")])).first > 3, "no sequence is given twice"


@pytest.mark.parametrize("change", CHANGES)
async def test_what_others_write_up_to_a_position_that_was_lost_is_not_taken_for_it(
    place: Place, session: str, change: str
) -> None:
    """They were told less, and get the very sequence that this store was told: the engine alone sees no difference."""
    if place.name == "sqlite":
        pytest.skip("a file that loses what was acknowledged takes its process with it")
    async with place.open() as store, place.open() as other:
        await store.append(session, [Message("user", "a"), Message("user", "b")])
        await _lose(place, session, after=1)
        seen, copy = await store.position(session), place.beside(session, "copy")
        assert (await other.append(session, [Message("user", "theirs")])).last == seen == 2
        with pytest.raises(Conflict):
            await CHANGES[change](store, session, seen, copy)
        found = [
            item.message.text for item in await store.history(session) if isinstance(item.message, Message)
        ]
        assert found == ["a", "theirs"]
        await CHANGES[change](store, session, await store.position(session), copy)


LOOKS = {"redis": "_servers.check_same", "postgres": "_read"}
"""What a store does before it goes on after a loss."""


async def test_an_engine_that_ends_before_the_loss_is_understood_has_written_nothing(
    own_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    if own_place.name not in LOOKS:
        pytest.skip("a file that loses what was acknowledged takes its process with it")
    async with own_place.open() as store:
        await store.append("s", [Message("user", "a"), Message("user", "b")])
        await _lose(own_place, "s", after=1)
        looks = attrgetter(LOOKS[own_place.name])(store)

        async def of_a_dead_engine(*given: Any) -> Any:
            monkeypatch.undo()
            own_place.engine.kill()
            return await looks(*given)

        monkeypatch.setattr(looks.__self__, looks.__name__, of_a_dead_engine)
        with pytest.raises(NotWritten):
            await store.append("s", [Message("user", "c")])


async def test_a_conflict_in_another_session_says_nothing_of_what_was_lost(
    place: Place, session: str
) -> None:
    """Of two conflicts of one change, the caller is told the first."""
    if place.name == "sqlite":
        pytest.skip("a file that loses what was acknowledged takes its process with it")
    lost = place.beside(session, "lost")
    both = {name: [Message("user", "x")] for name in (session, lost)}
    async with place.open() as store, place.open() as other:
        for _ in range(2):
            await store.append_many(both)
        await _lose(place, lost, after=1)
        assert await store.position(lost) == (await other.append(lost, [Message("user", "theirs")])).last
        for expect, told in (({session: 1, lost: 2}, session), ({session: 2, lost: 2}, lost)):
            with pytest.raises(Conflict) as conflict:
                await store.append_many(both, expect=expect)
            assert conflict.value.session == told
        await store.append_many(both, expect={session: 2, lost: 2})


async def _lose(place: Place, session: str, after: int) -> None:
    """What a crash may do to an engine whose last writes are not on its disk."""
    if place.name == "redis":
        client = place.redis()
        [messages] = [key async for key in client.scan_iter(match=f"*{session}*:m")]
        [counter] = [key async for key in client.scan_iter(match=f"*{session}*:c")]
        await client.ltrim(messages, 0, after - 1)
        await client.hset(counter, "last", after)
        await client.aclose()
        return
    connection = await asyncpg.connect(place.url)
    number = await connection.fetchval(
        "UPDATE recollect_sessions SET last = $2 WHERE name = $1 RETURNING id", session.encode(), after
    )
    await connection.execute(
        "DELETE FROM recollect_messages WHERE session_id = $1 AND sequence > $2", number, after
    )
    await connection.close()
