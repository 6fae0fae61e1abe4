"""Order, windows, and what forgetting leaves behind."""

import asyncio

import pytest

from recollect import Message, Refused, SessionState, Store
from tests.contract.reading import texts


async def test_order_is_the_engine_s_not_the_clock_s(store: Store, session: str) -> None:
    for second in (50.0, 10.0, 30.0):
        await store.append(session, [Message("user", str(second), timestamp=second)])
    assert await texts(store, session) == ["50.0", "10.0", "30.0"]


async def test_windows(store: Store, session: str) -> None:
    await store.append(session, [Message("user", str(number)) for number in range(1, 11)])
    assert await texts(store, session, last=3) == ["8", "9", "10"]
    assert await texts(store, session, last=0) == []
    assert await texts(store, session, last=1000) == [str(number) for number in range(1, 11)]
    assert await texts(store, session, after=7) == ["8", "9", "10"]
    assert await texts(store, session, after=0) == await texts(store, session)
    assert await texts(store, session, after=10) == []
    assert await texts(store, session, after=10**15) == []
    assert await texts(store, session, after=4, last=2) == ["9", "10"]


async def test_a_cursor_never_skips_after_forget(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "a"), Message("user", "b")])
    cursor = (await store.history(session))[-1].sequence
    await store.forget(session)
    assert await store.history(session) == []
    assert await store.history(session, after=cursor) == []
    await store.append(session, [Message("user", "c")])
    assert await texts(store, session, after=cursor) == ["c"]
    assert [item.sequence for item in await store.history(session)] == [3]


async def test_forget_is_idempotent_and_harms_nobody_else(store: Store, session: str) -> None:
    await store.append(f"{session}-neighbour", [Message("user", "stays")])
    await store.forget(session)
    await store.append(session, [Message("user", "goes")])
    await store.forget(session)
    await store.forget(session)
    assert await store.history(session) == []
    assert await texts(store, f"{session}-neighbour") == ["stays"]


async def test_states(store: Store, session: str) -> None:
    assert await store.state(session) is SessionState.ABSENT
    await store.append(session, [Message("user", "x")])
    assert await store.state(session) is SessionState.LIVE
    await store.forget(session)
    assert await store.state(session) is SessionState.FORGOTTEN
    await store.append(session, [Message("user", "x")])
    assert await store.state(session) is SessionState.LIVE


async def test_sessions_lists_the_live_ones(store: Store, session: str) -> None:
    wanted = {f"{session}/{number}" for number in range(30)}
    for name in wanted:
        await store.append(name, [Message("user", "x")])
    await store.forget(f"{session}/0")
    listed = [name async for name in store.sessions() if name.startswith(session)]
    assert sorted(listed) == sorted(wanted - {f"{session}/0"})


async def test_tasks_keep_their_own_order(store: Store, session: str) -> None:
    async def write(writer: int) -> None:
        for number in range(25):
            await store.append(session, [Message("user", f"{writer}:{number}")])

    await asyncio.gather(*(write(writer) for writer in range(8)))
    found = await texts(store, session)
    assert len(found) == 200
    for writer in range(8):
        own = [text for text in found if text.startswith(f"{writer}:")]
        assert own == [f"{writer}:{number}" for number in range(25)]


@pytest.mark.parametrize("window", [{"last": -1}, {"after": -5}, {"last": True}, {"last": "3"}], ids=str)
async def test_bad_windows_are_refused(store: Store, session: str, window: dict[str, int]) -> None:
    with pytest.raises(Refused):
        await store.history(session, **window)


async def test_a_long_session_is_read_whole(store: Store, session: str) -> None:
    for start in range(0, 5000, 1000):
        await store.append(session, [Message("user", str(start + number)) for number in range(1000)])
    assert await texts(store, session) == [str(number) for number in range(5000)]
    assert await texts(store, session, last=2) == ["4998", "4999"]
