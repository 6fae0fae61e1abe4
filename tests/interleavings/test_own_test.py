"""`@recollect.interleaved`: a test of one's own, in every order of its tasks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import pytest
import redis.asyncio as redis

import recollect
from recollect.verify import engines
from recollect.verify.engines import Endpoint
from recollect.verify.explore.interleavings.own_tasks import TasksHang
from recollect.verify.explore.interleavings.own_test import NotExplored

SECONDS = 120.0
"""A deadline for a machine with other work."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    engine = engines.create("redis", "none")
    try:
        yield engine.start()
    finally:
        engine.close()


async def _add(client: Any, key: str, lock: AbstractAsyncContextManager[Any]) -> None:
    async with lock:
        count = int(await client.get(key) or 0)
        await client.set(key, count + 1)


def _counting(*, locked: bool, schedule: str | None = None) -> Callable[[Endpoint], None]:
    @recollect.interleaved(seconds=SECONDS, bound=1, schedule=schedule)
    async def both_are_counted(endpoint: Endpoint) -> None:
        client = redis.Redis.from_url(endpoint.url)
        key, lock = f"count:{uuid.uuid4()}", asyncio.Lock() if locked else nullcontext()
        try:
            await asyncio.gather(_add(client, key, lock), _add(client, key, lock))
            assert int(await client.get(key) or 0) == 2
        finally:
            await client.aclose()

    return both_are_counted


def test_a_race_is_found_and_told(endpoint: Endpoint) -> None:
    with pytest.raises(AssertionError) as failed:
        _counting(locked=False)(endpoint)
    (note,) = failed.value.__notes__
    assert "it fails again in 3 of 3 replays" in note
    assert "GET count:" in note
    assert "SET count:" in note
    schedule = note.rpartition("schedule='")[2].removesuffix("')")
    for _ in range(3):
        with pytest.raises(AssertionError, match="assert 1 == 2"):
            _counting(locked=False, schedule=schedule)(endpoint)
        _counting(locked=True, schedule="")(endpoint)


def test_the_same_with_a_lock_passes(endpoint: Endpoint) -> None:
    _counting(locked=True)(endpoint)


def test_every_order_in_which_tasks_begin() -> None:
    orders: set[str] = set()

    @recollect.interleaved(seconds=SECONDS)
    async def three() -> None:
        began = ""

        async def one(name: str) -> None:
            nonlocal began
            began += name

        await asyncio.gather(one("a"), one("b"), one("c"))
        orders.add(began)

    three()
    assert orders == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_time_is_not_waited_for() -> None:
    slept: set[str] = set()

    @recollect.interleaved(seconds=SECONDS)
    async def sleeps() -> None:
        woke = ""

        async def after(name: str, hours: float) -> None:
            nonlocal woke
            await asyncio.sleep(3600 * hours)
            woke += name

        await asyncio.gather(after("a", 2), after("b", 1))
        slept.add(woke)

    sleeps()
    assert slept == {"ba"}, "nobody begins hours later because we wanted to"


def test_a_slow_job_is_waited_for() -> None:
    """Time goes on only if a thread waits for somebody: one that is busy, on a busy machine, is merely slow."""

    def work() -> None:
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass

    @recollect.interleaved(seconds=SECONDS)
    async def works() -> None:
        await asyncio.wait_for(asyncio.to_thread(work), 5.0)

    works()


def test_tasks_that_wait_for_each_other_are_told() -> None:
    @recollect.interleaved(seconds=SECONDS)
    async def two_locks() -> None:
        first, second = asyncio.Lock(), asyncio.Lock()

        async def take(one: asyncio.Lock, other: asyncio.Lock) -> None:
            async with one:
                await asyncio.sleep(0.01)
                async with other:
                    pass

        await asyncio.gather(take(first, second), take(second, first))

    with pytest.raises(TasksHang, match="no task can go on"):
        two_locks()


def test_what_fails_in_the_usual_order_is_no_question_of_orders() -> None:
    @recollect.interleaved
    async def wrong() -> None:
        raise ValueError("plainly wrong")

    with pytest.raises(ValueError, match="plainly wrong") as failed:
        wrong()
    assert not hasattr(failed.value, "__notes__")


def test_what_is_out_of_sight_is_no_pass(endpoint: Endpoint) -> None:
    @recollect.interleaved
    async def reads_by_itself() -> None:
        loop = asyncio.get_running_loop()
        assert endpoint.port is not None
        _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        heard = asyncio.Event()
        number = writer.get_extra_info("socket").fileno()
        loop.add_reader(number, heard.set)
        loop.remove_reader(number)
        writer.close()

    with pytest.raises(NotExplored, match="reads its connection itself"):
        reads_by_itself()


def test_too_little_time_is_no_pass() -> None:
    @recollect.interleaved(seconds=0.0)
    async def two() -> None:
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))

    with pytest.raises(NotExplored, match="seconds=60"):
        two()


def test_it_is_for_coroutines() -> None:
    with pytest.raises(TypeError, match="async def"):
        recollect.interleaved(print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not an order of tasks"):
        recollect.interleaved(schedule="no?")


def test_nothing_of_it_is_left_behind() -> None:
    before = threading.active_count()
    _ = [recollect.interleaved(seconds=SECONDS)(_nothing)() for _ in range(3)]
    assert threading.active_count() == before
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


async def _nothing() -> None:
    await asyncio.to_thread(str)


def test_recollect_stays_light() -> None:
    code = "import recollect, sys; print([m for m in sys.modules if m.startswith('recollect.')])"
    assert subprocess.check_output([sys.executable, "-c", code]).strip() == b"[]"
