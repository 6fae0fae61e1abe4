"""What a caller waits for, and how it goes on.

asyncio's futures wake their tasks in the next turn of the event loop, which is a turn too late for a batch: the callers
that were just answered are those who ask again. So the answers that a wire brings resume their tasks at once, in the
wire's own callback, and what they ask for next is sent before it returns. Everywhere else (a time limit, a connection
that broke, a caller that gives up) tasks are woken the usual way: only one can run at a time, and one may be running.

A task takes anything with `_asyncio_future_blocking` and these methods for a future.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")
Callback = Callable[[Any], object]


class Resumed(Generic[Value]):
    __slots__ = (
        "_asyncio_future_blocking",
        "_context",
        "_error",
        "_loop",
        "_others",
        "_wakes",
        "is_open",
        "value",
    )

    is_open: bool
    """The caller waits."""
    value: Value
    """To be set before it is no longer open."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on it is waited for; also a second time."""
        self._loop = loop
        self.is_open = True
        self._error: BaseException | None = None
        self._wakes: Callback | None = None
        """Goes on with who waits, in its `_context`."""
        self._context: Context
        self._others: list[tuple[Callback, Context]] | None = None
        """Whoever else waits: nearly always nobody."""
        self._asyncio_future_blocking = False

    def fail(self, error: BaseException) -> None:
        """Unless there is an answer already."""
        if self.is_open:
            self._error = error
            self.is_open = False
            self.wake()

    def wake(self) -> None:
        """Those who wait go on in the next turn of the loop."""
        for callback, context in self._waiting():
            self._loop.call_soon(callback, self, context=context)

    def go_on(self) -> None:
        """Those who wait go on now. Only where no task is running."""
        for callback, context in self._waiting():
            context.run(callback, self)

    def _waiting(self) -> list[tuple[Callback, Context]]:
        wakes, others = self._wakes, self._others
        self._wakes = self._others = None
        return [] if wakes is None else [(wakes, self._context), *(others or ())]

    # ---- what a task, or `asyncio.wait`, expects of a future

    def __await__(self) -> Generator[Any, None, Value]:
        if self.is_open:
            self._asyncio_future_blocking = True
            yield self
        return self.value if self._error is None else self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def done(self) -> bool:
        return not self.is_open

    def result(self) -> Value:
        if self._error is not None:
            raise self._error
        if self.is_open:
            raise asyncio.InvalidStateError("no answer yet")
        return self.value

    def add_done_callback(self, callback: Callback, *, context: Context | None = None) -> None:
        if context is None:
            context = copy_context()
        if not self.is_open:
            self._loop.call_soon(callback, self, context=context)
        elif self._wakes is None:
            self._wakes, self._context = callback, context
        else:
            self._others = [*(self._others or ()), (callback, context)]

    def remove_done_callback(self, callback: Callback) -> int:
        waiting = self._waiting()
        kept = [entry for entry in waiting if entry[0] != callback]
        if kept:
            (self._wakes, self._context), *self._others = kept
        return len(waiting) - len(kept)

    def cancel(self, msg: object = None) -> bool:
        if not self.is_open:
            return False
        self.fail(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True


def resume(answers: Sequence[Resumed[Any]]) -> None:
    """Who waits for these, which have their values, goes on, one after the other, before this returns; in the next turn
    if a task is running."""
    for answer in answers:
        answer.is_open = False
    left = iter(answers)
    try:
        if asyncio.current_task() is None:
            for answer in left:
                if (wakes := answer._wakes) is not None and answer._others is None:  # nearly always
                    answer._wakes = None
                    answer._context.run(wakes, answer)
                else:
                    answer.go_on()
    finally:
        for answer in left:  # also after one of them raised SystemExit or KeyboardInterrupt
            answer.wake()
