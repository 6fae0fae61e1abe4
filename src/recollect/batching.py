"""Group commit: jobs that arrive while others are under way are run together.

One fsync, one round trip or one transaction then serves many callers. A lone caller waits for nobody: its job starts
in the same turn of the event loop. Jobs start in the order they were submitted.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from recollect.errors import NotWritten, OutcomeUnknown

Job = TypeVar("Job")
Result = TypeVar("Result")


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
    ) -> None:
        self._run = run
        self._timeout_s = timeout_s
        self._batch_max = batch_max
        self._in_flight_max = in_flight_max
        self._waiting: deque[tuple[Job, asyncio.Future[Result]]] = deque()
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    async def submit(self, job: Job) -> Result:
        """The job's result, within the time limit: `NotWritten` if it had not started, else `OutcomeUnknown`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        entry = (job, future)
        self._waiting.append(entry)
        self._start()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            if entry in self._waiting:
                self._waiting.remove(entry)
                raise NotWritten(
                    f"waited {self._timeout_s:g} s behind other writes; the engine is slow or gone; safe to retry"
                ) from None
            raise OutcomeUnknown(
                f"no acknowledgement within {self._timeout_s:g} s; retry with the same turn id"
            ) from None
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            raise

    async def drain(self) -> None:
        """Waits until everything submitted so far has ended."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _start(self) -> None:
        if self._waiting and self._in_flight < self._in_flight_max:
            self._in_flight += 1
            task = asyncio.get_running_loop().create_task(self._work())
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
        try:
            results = await self._run([job for job, _ in batch])
        except Exception as error:
            results = [error] * size
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():  # its caller gave up
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
