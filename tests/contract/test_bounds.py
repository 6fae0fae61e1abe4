"""Every call ends in bounded time and tells the truth about what happened."""

import asyncio
import importlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import (
    EngineUnavailable,
    Message,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    SessionState,
    Store,
    open_store,
)
from recollect.stores.sqlite import erasing
from recollect.transfer import Moved, export_lines, import_file, movable
from recollect.verify.engines import Pausable
from tests.contract.conftest import Place
from tests.contract.reading import texts


def _server_only(place: Place) -> None:
    if place.engine.embedded:
        pytest.skip("the engine lives inside this process: it cannot be paused or killed on its own")


async def test_a_paused_engine_does_not_hang_the_caller(own_place: Place) -> None:
    _server_only(own_place)
    async with open_store(own_place.url, timeout_s=0.5) as store:
        await store.append("s", [Message("user", "before")], turn="t0")
        assert isinstance(own_place.engine, Pausable)
        own_place.engine.pause()
        try:
            started = time.monotonic()
            with pytest.raises((OutcomeUnknown, NotWritten)):
                await store.append("s", [Message("user", "during")], turn="t1")
            with pytest.raises(RecollectError):
                await store.history("s")
            assert time.monotonic() - started < 5
        finally:
            own_place.engine.resume()
        await _retry(lambda: store.append("s", [Message("user", "during")], turn="t1"))
        assert await texts(store, "s") == ["before", "during"]


async def test_a_forget_without_an_answer_says_that_it_can_be_made_again(own_place: Place) -> None:
    _server_only(own_place)
    async with open_store(own_place.url, timeout_s=0.5) as store:
        await store.append("s", [Message("user", "before")])
        assert isinstance(own_place.engine, Pausable)
        own_place.engine.pause()
        try:
            with pytest.raises(OutcomeUnknown) as told:
                await store.forget("s")
        finally:
            own_place.engine.resume()
        assert told.value.advice == "forget again"
        await _retry(lambda: store.forget("s"))
        assert await texts(store, "s") == []


async def test_an_erasure_without_an_answer_says_that_it_can_be_made_again(
    own_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is forgotten by then, and perhaps erased."""
    _server_only(own_place)
    async with open_store(own_place.url) as store:
        await store.append("s", [Message("user", "before")])
        erases = store._erase  # type: ignore[attr-defined]

        async def of_a_dead_engine(*given: Any) -> Any:
            own_place.engine.kill()
            return await erases(*given)

        monkeypatch.setattr(store, "_erase", of_a_dead_engine)
        with pytest.raises(OutcomeUnknown, match=r"erase again$") as told:
            await store.forget("s", erase=True)
        assert told.value.advice == "erase again"
        monkeypatch.undo()
        own_place.engine.restart()
        await _retry(lambda: store.forget("s", erase=True))
        assert await store.state("s") is SessionState.ABSENT


@pytest.mark.parametrize("closed", ["before", "meanwhile"])
async def test_what_fails_after_the_session_is_forgotten_is_no_refusal(
    place: Place, session: str, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`NotWritten` would say that the messages are still there."""
    if closed == "meanwhile" and place.name != "sqlite":
        return  # it is at the engine, and may end
    store = await open_store(place.url)
    await store.append(session, [Message("user", "x")])
    erases = store._erase  # type: ignore[attr-defined]
    began, done = threading.Event(), threading.Event()

    async def of_a_closed_store(*given: Any) -> Any:
        await store.close()
        return await erases(*given)

    def held_up(*given: Any) -> Any:
        began.set()
        assert done.wait(30)
        return erasing.erase_from_file(*given)

    if closed == "before":
        monkeypatch.setattr(store, "_erase", of_a_closed_store)
    else:
        monkeypatch.setattr("recollect.stores.sqlite.store.erase_from_file", held_up)
    erasure = asyncio.create_task(store.forget(session, erase=True))
    try:
        if closed == "meanwhile":
            assert await asyncio.to_thread(began.wait, 30)
            await store.close()
    finally:
        done.set()
        with pytest.raises(OutcomeUnknown, match=r"the store is closed.*; erase again$"):
            await erasure
    async with place.open() as store:
        assert await store.history(session) == []


async def swept(store: Store, path: Path, pause: Callable[[], None]) -> None:
    pause()
    await store.sweep()


async def read(store: Store, path: Path, pause: Callable[[], None]) -> None:
    pause()
    await store.history("s")


async def imported(store: Store, path: Path, pause: Callable[[], None]) -> None:
    path.write_bytes(b"".join([line async for line in export_lines(movable(store), Moved())]))
    await store.forget("s", erase=True)
    restores = store.restore  # type: ignore[attr-defined]

    async def paused(*given: Any) -> None:
        pause()
        await restores(*given)

    store.restore = paused  # type: ignore[attr-defined]
    async for _ in import_file(movable(store), path):
        pass


ADVICE = {swept: "sweep again", imported: "import again"}


@pytest.mark.parametrize("call", [swept, read, imported])
async def test_what_has_no_turn_id_is_not_told_to_retry_with_it(
    own_place: Place, tmp_path: Path, call: Callable[..., Any]
) -> None:
    _server_only(own_place)
    assert isinstance(own_place.engine, Pausable)
    options: dict[str, Any] = {"ttl": timedelta(days=1), "refresh": "read", "timeout_s": 1.0}
    async with open_store(own_place.url, **options) as store:
        await store.append("s", [Message("user", "before")])
        try:
            with pytest.raises(RecollectError) as told:
                await call(store, tmp_path / "exported", own_place.engine.pause)
        finally:
            own_place.engine.resume()
    assert "turn id" not in str(told.value)
    if not isinstance(told.value, EngineUnavailable):
        assert isinstance(told.value, OutcomeUnknown)
        assert told.value.advice == ADVICE[call]


async def test_a_killed_engine_raises_and_a_restarted_one_just_works(own_place: Place) -> None:
    _server_only(own_place)
    async with open_store(own_place.url, timeout_s=2.0) as store:
        await store.append("s", [Message("user", "before")], turn="t0")
        own_place.engine.kill()
        with pytest.raises((OutcomeUnknown, NotWritten)):
            await store.append("s", [Message("user", "during")], turn="t1")
        with pytest.raises(EngineUnavailable):
            await store.history("s")
        own_place.engine.restart()
        assert await texts(store, "s") == ["before"]
        await store.append("s", [Message("user", "during")], turn="t1")
        assert await texts(store, "s") == ["before", "during"]


async def test_an_idle_store_survives_an_engine_restart(own_place: Place) -> None:
    _server_only(own_place)
    async with open_store(own_place.url) as store:
        await store.append("s", [Message("user", "before")])
        own_place.engine.kill()
        own_place.engine.restart()
        await _retry(lambda: store.append("s", [Message("user", "after")], turn="t"))
        assert await texts(store, "s") == ["before", "after"]


DECODERS = {
    "sqlite": "recollect.stores.sqlite.rows.decode_all",
    "redis": "recollect.stores.redis.elements.decode_all",
    "postgres": "recollect.stores.postgres.rows.decode_all",
}


async def test_a_history_too_long_for_the_time_limit_is_said_so_and_blocks_nobody(
    place: Place, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine answers in time; turning its answer into messages is what takes too long."""
    messages = [Message("user", str(number)) for number in range(6_000)]
    async with open_store(place.url) as store:
        await store.append(session, messages)
    name = DECODERS[place.name]
    module, _, function = name.rpartition(".")
    decode = getattr(importlib.import_module(module), function)

    def slowly(records: list[bytes]) -> Any:
        time.sleep(0.001 * len(records))
        return decode(records)

    async with open_store(place.url, timeout_s=1.5) as store:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticking = asyncio.create_task(tick())
        monkeypatch.setattr(name, slowly)
        with pytest.raises(EngineUnavailable, match=r"reading took longer than 1\.5 s; ask for fewer"):
            await store.history(session)
        ticking.cancel()
        assert ticks > 0, "others had no turn while the history was read"
        assert await texts(store, session, last=3) == ["5997", "5998", "5999"]
        monkeypatch.undo()
    async with open_store(place.url, timeout_s=60) as store:
        assert await texts(store, session) == [message.text for message in messages]


async def test_no_engine_is_said_plainly(own_place: Place) -> None:
    _server_only(own_place)
    own_place.engine.kill()
    with pytest.raises(EngineUnavailable):
        await open_store(own_place.url, timeout_s=1.0)


async def test_a_closed_store_says_so(own_place: Place) -> None:
    store = await open_store(own_place.url)
    await store.close()
    await store.close()
    with pytest.raises(NotWritten, match="closed"):
        await store.append("s", [Message("user", "x")])
    with pytest.raises(EngineUnavailable, match="closed"):
        await store.history("s")


async def test_closing_goes_on_when_its_caller_gives_up(own_place: Place) -> None:
    """It waits for a write, which waits for the engine."""
    before = _open_files()
    store = await open_store(own_place.url, timeout_s=60)
    await store.append("s", [Message("user", "x")])
    with _busy(own_place):
        append = asyncio.create_task(store.append("s", [Message("user", "y")]))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.close(), 0.01)
    await append
    async with asyncio.timeout(20):
        while _open_files() > before:
            await asyncio.sleep(0.01)
    await store.close()


@contextmanager
def _busy(place: Place) -> Iterator[None]:
    """Meanwhile no write ends."""
    if place.name == "sqlite":
        with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
        return
    assert isinstance(place.engine, Pausable)
    place.engine.pause()
    yield
    place.engine.resume()


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_cancelled_append_leaves_the_store_usable(own_place: Place) -> None:
    async with open_store(own_place.url) as store:
        tasks = [
            asyncio.create_task(store.append("s", [Message("user", str(n))], turn=str(n))) for n in range(50)
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for number, outcome in enumerate(outcomes):
            if isinstance(outcome, BaseException):
                await store.append("s", [Message("user", str(number))], turn=str(number))
        found = await texts(store, "s")
        assert sorted(found, key=int) == [str(n) for n in range(50)]


async def _retry(append: object) -> None:
    """As a caller does: the same turn id until it is acknowledged."""
    end = time.monotonic() + 10
    while True:
        try:
            await append()  # type: ignore[operator]
        except (NotWritten, OutcomeUnknown):
            assert time.monotonic() < end, "never acknowledged"
        else:
            return


@pytest.mark.parametrize("last", [None, 3])
async def test_a_task_that_reads_on_and_on_lets_others_run(place: Place, last: int | None) -> None:
    async with open_store(place.url) as store:
        await store.append("s", [Message("user", "a")])
        others = 0

        async def other() -> None:
            nonlocal others
            for _ in range(3):
                await asyncio.sleep(0)
                others += 1

        beside = asyncio.create_task(other())
        deadline = time.monotonic() + 30
        while others < 3 and time.monotonic() < deadline:
            await store.history("s", last=last)
        assert others == 3
        await beside
