"""Group commit, seen from the jobs."""

import asyncio
import time
from typing import Any

import pytest

from recollect import NotWritten, OutcomeUnknown
from recollect.batching import Batcher


class Batches:
    """Records the batches it is given; each takes one turn of the event loop unless it is held."""

    def __init__(self) -> None:
        self.seen: list[list[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, jobs: list[Any]) -> list[Any]:
        self.seen.append(jobs)
        await self.gate.wait()
        return [ValueError(job) if job == "bad" else f"{job}!" for job in jobs]


async def held(timeout_s: float = 5, **options: Any) -> tuple[Batches, Batcher[Any, Any], asyncio.Task[Any]]:
    """A batcher with one job under way, `first`, which ends when the gate is opened."""
    batches = Batches()
    batches.gate.clear()
    batcher = Batcher[Any, Any](batches.run, timeout_s=timeout_s, **options)
    first = asyncio.create_task(batcher.submit("first"))
    await asyncio.sleep(0.001)
    return batches, batcher, first


async def test_jobs_that_arrive_together_run_together() -> None:
    batches = Batches()
    batcher = Batcher[Any, Any](batches.run, timeout_s=5)
    assert await asyncio.gather(*map(batcher.submit, "abc")) == ["a!", "b!", "c!"]
    assert batches.seen == [["a", "b", "c"]]


async def test_jobs_that_arrive_during_a_batch_form_the_next_in_order() -> None:
    batches, batcher, first = await held(batch_max=3)
    later = [asyncio.create_task(batcher.submit(name)) for name in "abcd"]
    await asyncio.sleep(0.001)
    batches.gate.set()
    await asyncio.gather(first, *later)
    assert batches.seen == [["first"], ["a", "b", "c"], ["d"]]


async def test_a_steady_stream_never_stalls() -> None:
    batches = Batches()
    batcher = Batcher[Any, Any](batches.run, timeout_s=5, in_flight_max=2)

    async def client() -> None:
        for number in range(200):
            assert await batcher.submit(number) == f"{number}!"

    await asyncio.gather(*(client() for _ in range(3)))


async def test_callers_just_answered_are_served_by_the_lane_that_answered_them() -> None:
    started = 0

    def counted(loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> asyncio.Task[Any]:
        nonlocal started
        started += 1
        return asyncio.Task(work, loop=loop, **named)

    async def run(jobs: list[Any]) -> list[Any]:
        await asyncio.sleep(0.001)
        return jobs

    batcher = Batcher[Any, Any](run, timeout_s=5, in_flight_max=2)

    async def client() -> None:
        for number in range(20):
            await batcher.submit(number)

    clients = [asyncio.create_task(client()) for _ in range(8)]
    asyncio.get_running_loop().set_task_factory(counted)
    try:
        await asyncio.wait(clients)
    finally:
        asyncio.get_running_loop().set_task_factory(None)
    assert started == 2  # the second lane, once: before the first batch had begun


async def test_what_is_too_much_for_one_batch_goes_to_the_other_lane() -> None:
    """Others submit while the callers just answered do: together they are two batches."""
    begun: list[Any] = []
    answered, gate = asyncio.Event(), asyncio.Event()

    async def run(jobs: list[Any]) -> list[Any]:
        begun.extend(jobs)
        answered.set()
        if jobs != ["first"]:
            await gate.wait()
        return jobs

    async def other(name: str) -> None:
        await answered.wait()
        await batcher.submit(name)

    batcher = Batcher[Any, Any](run, timeout_s=5, batch_max=1, in_flight_max=2)
    others = [asyncio.create_task(other(name)) for name in "ab"]
    await asyncio.sleep(0)
    await batcher.submit("first")
    await asyncio.sleep(0.001)
    assert begun == ["first", "a", "b"]
    gate.set()
    await asyncio.wait(others)


@pytest.mark.parametrize(
    ("busy", "clients", "sessions", "lanes", "sizes"),
    [
        (True, 100, 100, 2, {50}),
        (False, 100, 100, 2, {100}),
        (True, 100, 99, 2, {100}),
        (True, 100, 100, 1, {100}),
        (True, 47, 47, 2, {47}),
    ],
    ids=["halves", "jobs-wait-for-the-engine", "one-session-twice", "one-connection", "too-few"],
)
async def test_many_jobs_go_out_in_halves_if_the_loop_is_what_they_wait_for(
    monkeypatch: pytest.MonkeyPatch, busy: bool, clients: int, sessions: int, lanes: int, sizes: set[int]
) -> None:
    monkeypatch.setattr(time, "thread_time", time.monotonic if busy else lambda: 0.0)
    seen: list[int] = []
    running, together = 0, 0

    async def run(jobs: list[Any]) -> list[Any]:
        nonlocal running, together
        seen.append(len(jobs))
        running += 1
        together = max(together, running)
        await asyncio.sleep(0.001)
        running -= 1
        return jobs

    batcher = Batcher[Any, Any](run, timeout_s=5, in_flight_max=lanes, place=lambda job: job % sessions)

    async def client(job: int) -> None:
        for _ in range(30):
            assert await batcher.submit(job) == job

    await asyncio.gather(*map(client, range(clients)))
    assert set(seen[-10:]) == sizes
    assert (together == 2) == (sizes == {50}), "one half is under way while the other is answered"


async def test_an_error_reaches_only_its_own_job() -> None:
    batcher = Batcher[Any, Any](Batches().run, timeout_s=5)
    outcomes = await asyncio.gather(*map(batcher.submit, ["a", "bad", "c"]), return_exceptions=True)
    assert (outcomes[0], outcomes[2]) == ("a!", "c!")
    assert isinstance(outcomes[1], ValueError)


async def test_an_error_of_the_batch_reaches_all_its_jobs() -> None:
    async def run(jobs: list[Any]) -> list[Any]:
        raise NotWritten("no")

    batcher = Batcher[Any, Any](run, timeout_s=5)
    outcomes = await asyncio.gather(*map(batcher.submit, "ab"), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NotWritten, NotWritten]


async def test_time_runs_out_before_and_after_the_start() -> None:
    batches, batcher, first = await held(timeout_s=0.05)
    waiting = asyncio.create_task(batcher.submit("waiting"))
    outcomes = await asyncio.gather(first, waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, NotWritten]
    batches.gate.set()
    await batcher.drain()
    assert batches.seen == [["first"]], "what was given up before it started never starts"


async def test_a_cancelled_job_that_had_not_started_never_starts() -> None:
    batches, batcher, first = await held()
    cancelled = asyncio.create_task(batcher.submit("cancelled"))
    await asyncio.sleep(0.001)
    cancelled.cancel()
    batches.gate.set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await batcher.drain()
    assert batches.seen == [["first"]]


async def _run_or_submit(batcher: Batcher[Any, Any], job: Any) -> Any:
    """As a store does whose engine is inside the process."""
    if not batcher.alone():
        return await batcher.submit(job)
    if batcher.yield_due():
        await asyncio.sleep(0)
    return f"{job}?"


async def test_a_lone_task_runs_its_jobs_itself_and_still_lets_others_run() -> None:
    batcher = Batcher[Any, Any](Batches().run, timeout_s=5)
    other_ran = 0

    async def other() -> None:
        nonlocal other_ran
        while True:
            other_ran += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    answers = [await _run_or_submit(batcher, number) for number in range(5000)]
    task.cancel()
    assert answers[0] == "0!", "the first of a task may have company, so it waits for it"
    assert answers[1:] == [f"{number}?" for number in range(1, 5000)]
    assert other_ran > 1


async def test_tasks_that_take_turns_are_grouped() -> None:
    batches = Batches()
    batcher = Batcher[Any, Any](batches.run, timeout_s=5)

    async def client(name: str) -> None:
        for _ in range(20):
            await _run_or_submit(batcher, name)

    await asyncio.gather(client("a"), client("b"), client("c"))
    assert any(len(batch) == 3 for batch in batches.seen)


async def test_time_runs_out_for_each_job_on_its_own() -> None:
    batches = Batches()
    batches.gate.clear()
    batcher = Batcher[Any, Any](batches.run, timeout_s=0.05)
    early = asyncio.create_task(batcher.submit("early"))
    await asyncio.sleep(0.03)
    late = asyncio.create_task(batcher.submit("late"))
    with pytest.raises(OutcomeUnknown):
        await early
    with pytest.raises(NotWritten):
        await late
    batches.gate.set()
    assert await batcher.submit("next") == "next!"
    await batcher.drain()


def test_a_batcher_serves_one_event_loop_after_the_other() -> None:
    async def run(jobs: list[Any]) -> list[Any]:
        return jobs

    batcher = Batcher[Any, Any](run, timeout_s=5)
    assert [asyncio.run(batcher.submit(number)) for number in range(3)] == [0, 1, 2]
