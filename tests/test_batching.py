"""Group commit: who waits, who shares a batch, and what a caller hears when time is up."""

import asyncio

import pytest

from recollect.batching import Batcher
from recollect.errors import NotWritten, OutcomeUnknown


class Engine:
    """Runs batches when told to, and remembers them."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()

    async def run(self, jobs: list[int]) -> list[int | Exception]:
        self.batches.append(jobs)
        await self.go.wait()
        return [ValueError(job) if job < 0 else job * 10 for job in jobs]


async def _until_running(engine: Engine, batches: int) -> None:
    async with asyncio.timeout(5):
        while len(engine.batches) < batches:
            await asyncio.sleep(0)


async def test_jobs_that_arrive_meanwhile_share_the_next_batch() -> None:
    engine = Engine()
    batcher = Batcher[int, int](engine.run, timeout_s=5)
    tasks = [asyncio.create_task(batcher.submit(1))]
    await _until_running(engine, 1)
    tasks += [asyncio.create_task(batcher.submit(job)) for job in (2, -3, 4)]
    engine.go.set()
    assert await asyncio.gather(*tasks[:2], tasks[3]) == [10, 20, 40]
    with pytest.raises(ValueError, match="-3"):
        await tasks[2]
    assert engine.batches == [[1], [2, -3, 4]]
    await batcher.drain()


async def test_time_is_up_for_each_job_on_its_own() -> None:
    engine = Engine()
    batcher = Batcher[int, int](engine.run, timeout_s=0.05)
    running = asyncio.create_task(batcher.submit(1))
    await _until_running(engine, 1)
    waiting = asyncio.create_task(batcher.submit(2))
    with pytest.raises(OutcomeUnknown):
        await running
    with pytest.raises(NotWritten):
        await waiting
    late = asyncio.create_task(batcher.submit(3))
    await asyncio.sleep(0)
    engine.go.set()
    assert await late == 30
    assert engine.batches == [[1], [3]]
    await batcher.drain()


async def test_a_cancelled_caller_takes_its_waiting_job_along() -> None:
    engine = Engine()
    batcher = Batcher[int, int](engine.run, timeout_s=5)
    first = asyncio.create_task(batcher.submit(1))
    await _until_running(engine, 1)
    second, third = (asyncio.create_task(batcher.submit(job)) for job in (2, 3))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    engine.go.set()
    assert (await first, await third) == (10, 30)
    assert engine.batches == [[1], [3]]
    await batcher.drain()


async def test_a_batcher_serves_one_event_loop_after_the_other() -> None:
    engine = Engine()
    engine.go.set()
    batcher = Batcher[int, int](engine.run, timeout_s=5)
    for job in (1, 2):
        assert await asyncio.to_thread(_run_alone, batcher, job) == job * 10


def _run_alone(batcher: Batcher[int, int], job: int) -> int:
    return asyncio.run(batcher.submit(job))
