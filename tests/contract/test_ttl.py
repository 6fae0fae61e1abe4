"""Time to live: applied with the append, by the engine's clock, to the session as a whole."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from recollect import Message, Refused, SessionState, open_store
from tests.contract.conftest import Place
from tests.contract.reading import texts

SHORT = timedelta(milliseconds=400)
LONG = timedelta(hours=1)


async def eventually(condition: Callable[[], Awaitable[bool]], deadline_s: float = 5.0) -> None:
    end = time.monotonic() + deadline_s
    while not await condition():
        assert time.monotonic() < end, "the condition never came true"
        await asyncio.sleep(0.02)


async def test_an_expired_session_is_empty_and_says_that_it_expired(place: Place, session: str) -> None:
    async with place.open(ttl=SHORT) as store:
        await store.append(session, [Message("user", "a"), Message("user", "b")])
        assert await store.state(session) is SessionState.LIVE

        async def gone() -> bool:
            return not await store.history(session)

        await eventually(gone)
        assert await store.state(session) is SessionState.EXPIRED
        assert session not in [name async for name in store.sessions()]
        await store.append(session, [Message("user", "c")])
        assert [item.sequence for item in await store.history(session)] == [3]


async def test_refresh_append_restarts_the_time_with_each_append(place: Place, session: str) -> None:
    async with place.open(ttl=SHORT) as store:
        end = time.monotonic() + 2.2 * SHORT.total_seconds()
        count = 0
        while time.monotonic() < end:
            await store.append(session, [Message("user", "x")])
            count += 1
            await asyncio.sleep(0.02)
        assert len(await store.history(session)) == count


async def test_refresh_never_counts_from_the_first_append(place: Place, session: str) -> None:
    async with place.open(ttl=SHORT, refresh="never") as store:
        await store.append(session, [Message("user", "first")])

        async def begins_anew() -> bool:
            receipt = await store.append(session, [Message("user", "later")])
            return len(await store.history(session)) < receipt.last

        await eventually(begins_anew)


async def test_refresh_read_restarts_the_time_with_each_read(place: Place, session: str) -> None:
    async with place.open(ttl=SHORT, refresh="read") as store:
        await store.append(session, [Message("user", "x")])
        end = time.monotonic() + 2.2 * SHORT.total_seconds()
        while time.monotonic() < end:
            assert await texts(store, session) == ["x"]
            await asyncio.sleep(0.02)

        async def gone() -> bool:
            return await store.state(session) is SessionState.EXPIRED

        await eventually(gone)


async def test_reading_does_not_refresh_unless_asked(place: Place, session: str) -> None:
    async with place.open(ttl=SHORT) as store:
        await store.append(session, [Message("user", "x")])

        async def gone() -> bool:
            return not await store.history(session)

        await eventually(gone)


async def test_an_append_without_ttl_makes_the_session_live_for_ever(place: Place, session: str) -> None:
    async with place.open(ttl=SHORT) as short, place.open() as lasting:
        await short.append(session, [Message("user", "a")])
        await lasting.append(session, [Message("user", "b")])
        await asyncio.sleep(2 * SHORT.total_seconds())
        assert await texts(lasting, session) == ["a", "b"]
        assert await lasting.state(session) is SessionState.LIVE


async def test_a_retry_after_expiry_does_not_bring_the_turn_back(place: Place, session: str) -> None:
    async with place.open(ttl=SHORT) as store:
        await store.append(session, [Message("user", "x")], turn="t1")

        async def gone() -> bool:
            return not await store.history(session)

        await eventually(gone)
        await store.append(session, [Message("user", "x")], turn="t1")
        assert await store.history(session) == []


async def test_sweep_frees_the_expired_and_only_them(place: Place, session: str) -> None:
    async with place.open(ttl=SHORT) as short, place.open(ttl=LONG) as long:
        await short.append(f"{session}/short", [Message("user", "x")])
        await long.append(f"{session}/long", [Message("user", "x")])

        async def expired() -> bool:
            return await short.state(f"{session}/short") is SessionState.EXPIRED

        await eventually(expired)
        await short.sweep()
        assert await short.sweep() == 0
        assert await short.state(f"{session}/short") is SessionState.EXPIRED
        assert await texts(long, f"{session}/long") == ["x"]


@pytest.mark.parametrize(
    "bad",
    [
        {"ttl": timedelta(0)},
        {"refresh": "sometimes"},
        {"turns_kept": 0},
        {"timeout_s": 0},
        {"durability": "forever"},
    ],
    ids=str,
)
async def test_bad_options_are_refused(place: Place, bad: dict[str, object]) -> None:
    with pytest.raises(Refused):
        await open_store(place.url, **bad)  # type: ignore[arg-type]
