"""Group commit: jobs that arrive while others are running are run together.

One fsync, one round trip or one transaction then serves many callers. Jobs start in the order they were submitted.

A task that submits one job after another, with nobody else in between, gains nothing from waiting for company. Such a
task (`alone`) may run its job itself, at once: through `run_alone` where that takes time, or, where the engine is
inside the process, without awaiting at all, as long as it lets others run every `YIELD_S` (`yield_due`). As soon as
two tasks take turns, their jobs are grouped.

Where two batches may run at once, many jobs go out in halves if the event loop has more to do than the engine.

Redis groups its writes on the wire itself (`stores/redis/commit.py`; docs/decisions/0008), and raises the same errors
when time runs out.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from recollect.errors import NotWritten, OutcomeUnknown
from recollect.owner import can_end

Job = TypeVar("Job")
Result = TypeVar("Result")


YIELD_S = 0.001

HALVED_LEAST = 48
"""Fewer jobs are not worth two round trips and two commits: docs/decisions/0011."""
HALVED_BUSY = 0.4
"""The loop's share of the time from batch to batch, above which it, and not the engine, is what jobs wait for."""

BatchObserver = Callable[[int, float], None]
"""Is told each batch's size, and how long its first job waited."""


def never_started(timeout_s: float, queue: str) -> NotWritten:
    return NotWritten(f"waited {timeout_s:g} s {queue}; the engine is slow or gone; safe to retry")


def unacknowledged(timeout_s: float) -> OutcomeUnknown:
    return OutcomeUnknown(f"no acknowledgement within {timeout_s:g} s")


class _Entry(Generic[Job, Result]):
    __slots__ = ("deadline", "future", "job")

    def __init__(self, job: Job, future: "asyncio.Future[Result]", deadline: float) -> None:
        self.job = job
        self.future = future
        self.deadline = deadline


class Batcher(Generic[Job, Result]):
    """Runs submitted jobs in batches, with at most `in_flight_max` batches at once.

    `run` gets the jobs and returns one result or exception for each, in their order. An exception that `run` itself
    raises goes to every job of the batch.
    """

    def __init__(
        self,
        run: Callable[[list[Job]], Awaitable[list[Result | Exception]]],
        *,
        timeout_s: float,
        batch_max: int = 128,
        in_flight_max: int = 1,
        queue: str = "behind other writes",
        place: Callable[[Job], Hashable] | None = None,
    ) -> None:
        self._run = run
        self._timeout_s = timeout_s
        self._batch_max = batch_max
        self._in_flight_max = in_flight_max
        self._queue = queue  # for the error: what a job that never started was waiting for
        self._place = place  # what jobs of two batches should not share: they would wait for each other
        self._busy = 0.0  # the loop's share, a moving average
        self._begun = (0.0, 0.0)  # the last batch, by the clock and by this thread's processor time
        self._waiting: deque[_Entry[Job, Result]] = deque()
        self._unfinished: deque[_Entry[Job, Result]] = deque()  # waiting or running, oldest first
        self._limit: asyncio.TimerHandle | None = None
        self._in_flight = 0
        self._gathering = False  # callers just answered may submit their next job before a lane goes on
        self._running = 0  # lower than in flight while a finished batch lets its callers continue
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references
        self._last_asking = 0
        self._yielded_at = 0.0
        self.observe: BatchObserver | None = None

    def alone(self) -> bool:
        """True when the last task to ask is asking again and no job is waiting or running: nothing to group with."""
        asking = id(asyncio.current_task())
        alone = asking == self._last_asking and not self._running and not self._waiting
        self._last_asking = asking
        return alone

    async def run_alone(self, work: Awaitable[Result]) -> Result:
        """One job outside any batch; jobs that arrive meanwhile are grouped behind it."""
        self._running += 1
        try:
            return await work
        finally:
            self._running -= 1

    def yield_due(self) -> bool:
        """Whether a task that runs its jobs itself has to let others run now."""
        now = time.monotonic()
        if now - self._yielded_at <= YIELD_S:
            return False
        self._yielded_at = now
        return True

    async def drain(self) -> None:
        """Waits until everything submitted so far has ended."""
        while tasks := set(filter(can_end, self._tasks)):
            await asyncio.wait(tasks)
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    async def submit(self, job: Job) -> Result:
        """The job's result, within the time limit: `NotWritten` if it had not started, else `OutcomeUnknown`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        entry = _Entry(job, future, loop.time() + self._timeout_s)
        self._waiting.append(entry)
        if self._limit is None:
            self._limit = loop.call_at(entry.deadline, self._give_up)
        self._unfinished.append(entry)
        self._start(loop)
        try:
            return await future
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            raise

    def _give_up(self) -> None:
        """One timer serves all jobs, since the oldest come first: it fails the overdue ones and waits for the next.
        Most jobs end in time, so ending one does not touch the timer; it sees for itself when it fires."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._unfinished:
            entry = self._unfinished[0]
            if not entry.future.done():
                if entry.deadline > now:
                    self._limit = loop.call_at(entry.deadline, self._give_up)
                    return
                entry.future.set_exception(self._overdue(entry))
            self._unfinished.popleft()
        self._limit = None

    def _overdue(self, entry: "_Entry[Job, Result]") -> Exception:
        if entry in self._waiting:
            self._waiting.remove(entry)
            return never_started(self._timeout_s, self._queue)
        return unacknowledged(self._timeout_s)

    def _drop_finished(self) -> None:
        while self._unfinished and self._unfinished[0].future.done():
            self._unfinished.popleft()

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._in_flight < self._in_flight_max and not self._gathering:
            self._in_flight += 1
            task = loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._run_batch()
                # Let the callers that were just answered submit their next job, so that it joins the next batch.
                self._gathering = True
                try:
                    await asyncio.sleep(0)
                finally:
                    self._gathering = False
        finally:
            # Here and not in a done callback: a job submitted between the two would wait for ever.
            self._in_flight -= 1

    def _size(self) -> int:
        """All that wait, or half of them: then one half is answered, and submits again, while the engine works on the
        other. Where jobs wait for the engine, or for its disk, halves would only make them wait twice."""
        size = min(len(self._waiting), self._batch_max)
        if self._place is None or self._in_flight_max == 1 or size < HALVED_LEAST // 2:
            return size
        before, self._begun = self._begun, (time.monotonic(), time.thread_time())
        share = (self._begun[1] - before[1]) / max(self._begun[0] - before[0], 1e-6)
        self._busy = 0.9 * self._busy + 0.1 * share
        if self._busy < HALVED_BUSY or size < HALVED_LEAST or self._in_flight > 1:
            return size
        places = {self._place(entry.job) for entry in self._waiting}
        return size if len(places) < len(self._waiting) else (size + 1) // 2

    async def _run_batch(self) -> None:
        size = self._size()
        batch = [self._waiting.popleft() for _ in range(size)]
        if self._waiting:  # gathered for one batch, but too many
            self._start(asyncio.get_running_loop())
        if self.observe is not None:
            submitted_at = batch[0].deadline - self._timeout_s
            self.observe(size, asyncio.get_running_loop().time() - submitted_at)
        self._running += 1
        try:
            results = await self._run([entry.job for entry in batch])
        except Exception as error:
            results = [error] * size
        finally:
            self._running -= 1
        for entry, result in zip(batch, results, strict=True):
            future = entry.future
            if future.done():  # its caller gave up
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        self._drop_finished()
