"""A thread that waits for work on an event loop, and may be interrupted at any moment.

A signal's handler may raise between any two steps of Python code. `concurrent.futures.Future` takes its lock in Python:
interrupted there, the caller leaves it locked, the loop's thread waits for it when the work ends, and with it everybody
else. Here the answer goes through a `SimpleQueue`, which is C: whoever is interrupted leaves nothing locked.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, NoReturn, TypeVar

Value = TypeVar("Value")


class Waited(Generic[Value]):
    """Work of a loop, for one caller on another thread."""

    def __init__(self, work: Coroutine[Any, Any, Value]) -> None:
        self._work = work
        self._task: asyncio.Task[Value] | None = None
        self._ended: Callable[[Waited[Any]], None] | None = None
        self._answer: SimpleQueue[Callable[[], Value]] = SimpleQueue()
        self._answered = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has the loop do the work; `RuntimeError` if it is closed."""
        try:
            loop.call_soon_threadsafe(self.begin, loop)
        except RuntimeError:
            self._work.close()
            raise

    def result(self) -> Value:
        """What the work returns or raises; `asyncio.CancelledError` if it was cancelled. Only once."""
        return self._answer.get()()

    def cancel(self) -> None:
        """On the loop's thread only."""
        if self._task is not None:
            self._task.cancel()

    def begin(
        self, loop: asyncio.AbstractEventLoop, ended: "Callable[[Waited[Any]], None] | None" = None
    ) -> None:
        """Begins the work, and calls `ended` after it. On the loop's thread only."""
        self._ended = ended
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._end)

    def refuse(self, error: Exception) -> None:
        """The answer to work that does not begin."""
        self._work.close()
        self._tell(partial(_raise, error))

    async def _run(self) -> Value:
        """Answers as soon as the work has ended: a callback of the task is called a turn of the loop later."""
        try:
            value = await self._work
        except (
            KeyboardInterrupt,
            SystemExit,
        ) as error:  # for the caller: it would end the loop, which has others
            self._tell(partial(_raise, error))
            raise asyncio.CancelledError from error
        self._tell(lambda: value)
        return value

    def _end(self, task: "asyncio.Task[Value]") -> None:
        if not task.cancelled():
            task.exception()  # heard of, even if the caller has gone
        if not self._answered:
            self._work.close()  # a task that was cancelled at once has not begun it
            self._tell(task.result)

    def _tell(self, answer: Callable[[], Value]) -> None:
        self._answered = True
        if self._ended is not None:
            self._ended(self)
        self._answer.put(answer)


def wait_for(work: Coroutine[Any, Any, Value], loop: asyncio.AbstractEventLoop) -> Value:
    """The result of work on a loop that runs on another thread."""
    waited = Waited(work)
    waited.start(loop)
    return waited.result()


def _raise(error: BaseException) -> NoReturn:
    raise error
