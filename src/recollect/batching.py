"""Group commit: jobs that arrive while others are under way are run together.

One fsync, one round trip or one transaction then serves many callers. Jobs start in the order they were submitted.

An engine inside the process can also have its job tried at once, on the event loop (`attempt`): a task that submits one
job after the other, with nobody else in between, gains nothing from waiting for company. It still lets the others run
every `YIELD_S`; as soon as two tasks take turns, their jobs are grouped.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from recollect.errors import NotWritten, OutcomeUnknown

Job = TypeVar("Job")
Result = TypeVar("Result")


YIELD_S = 0.001


class Batcher(Generic[Job, Result]):
    """Runs submitted jobs in batches, with at most `in_flight_max` batches at once.

    `run` gets the jobs and returns one result or exception for each, in their order. An exception that `run` itself
    raises goes to every job of the batch. `attempt` does the same without waiting, or returns None if it would have to.
    """

    def __init__(
        self,
        run: Callable[[list[Job]], Awaitable[list[Result | Exception]]],
        *,
        timeout_s: float,
        attempt: Callable[[list[Job]], list[Result | Exception] | None] | None = None,
        batch_max: int = 128,
        in_flight_max: int = 1,
        queue: str = "behind other writes",
    ) -> None:
        self._run = run
        self._attempt = attempt
        self._timeout_s = timeout_s
        self._batch_max = batch_max
        self._in_flight_max = in_flight_max
        self._queue = queue  # what a job that never started was waiting for, as its error says
        self._waiting: deque[tuple[Job, asyncio.Future[Result]]] = deque()
        self._in_flight = 0
        self._running = 0  # less than in flight while a batch lets its callers go on
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references
        self._last_submitter = 0
        self._yielded_at = 0.0

    async def submit(self, job: Job) -> Result:
        """The job's result, within the time limit: `NotWritten` if it had not started, else `OutcomeUnknown`."""
        if self._attempt is not None:
            submitter = id(asyncio.current_task())
            alone = submitter == self._last_submitter and not self._running and not self._waiting
            self._last_submitter = submitter
            if alone and (results := self._attempt([job])) is not None:
                await self._yield_now_and_then()
                if isinstance(results[0], Exception):
                    raise results[0]
                return results[0]
        return await self._submit(job)

    async def drain(self) -> None:
        """Waits until everything submitted so far has ended."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _yield_now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._yielded_at > YIELD_S:
            await asyncio.sleep(0)
            self._yielded_at = time.monotonic()

    async def _submit(self, job: Job) -> Result:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        entry = (job, future)
        self._waiting.append(entry)
        self._start(loop)
        limit = loop.call_later(self._timeout_s, self._give_up, entry)  # cheaper than asyncio.timeout
        try:
            return await future
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            raise
        finally:
            limit.cancel()

    def _give_up(self, entry: tuple[Job, asyncio.Future[Result]]) -> None:
        future = entry[1]
        if future.done():
            return
        if entry in self._waiting:
            self._waiting.remove(entry)
            future.set_exception(
                NotWritten(
                    f"waited {self._timeout_s:g} s {self._queue}; the engine is slow or gone; safe to retry"
                )
            )
        else:
            future.set_exception(
                OutcomeUnknown(
                    f"no acknowledgement within {self._timeout_s:g} s; retry with the same turn id"
                )
            )

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._in_flight < self._in_flight_max:
            self._in_flight += 1
            task = loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._run_batch()
                # Let the callers that were just answered submit their next job, so that it joins the next batch.
                await asyncio.sleep(0)
        finally:
            # Here and not in a done callback: a job submitted between the two would wait for ever.
            self._in_flight -= 1

    async def _run_batch(self) -> None:
        size = min(len(self._waiting), self._batch_max)
        batch = [self._waiting.popleft() for _ in range(size)]
        self._running += 1
        try:
            results = await self._run([job for job, _ in batch])
        except Exception as error:
            results = [error] * size
        finally:
            self._running -= 1
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():  # its caller gave up
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
