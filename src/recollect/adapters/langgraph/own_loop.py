"""LangGraph calls one object from any thread and any event loop, so its connections live on a loop of their own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from recollect.adapters.carrying import settled
from recollect.errors import Refused, StoreClosed
from recollect.owner import Owner
from recollect.waiting import Waited

Value = TypeVar("Value")


class OwnLoop:
    """The loop that the connections of a saver or a store live on, in its own thread, and how to reach it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._owner = Owner()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"recollect-{what}", daemon=True)
        self._thread.start()
        self._gate = threading.Lock()
        self._closed = False

    def wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Runs the work from any thread that may block."""
        waited = Waited(work)
        self._send(work, waited.start)
        return waited.result()

    async def reach(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Runs the work from any event loop."""
        sent = self._send(work, lambda loop: asyncio.run_coroutine_threadsafe(work, loop))
        return await settled(asyncio.wrap_future(sent))

    def _send(
        self, work: Coroutine[Any, Any, Any], start: Callable[[asyncio.AbstractEventLoop], Value]
    ) -> Value:
        try:
            if self._owner.forked:
                raise Refused(f"a {self._what} does not survive fork: open it in this process")
            with self._gate:
                if self._closed:
                    raise StoreClosed(self._what)
                return start(self._loop)
        except BaseException:
            work.close()
            raise

    @property
    def usable(self) -> bool:
        """Whether it is open, and this is the process that opened it."""
        return not self._closed and not self._owner.forked

    def close(self, closing: Any) -> None:
        if self._owner.forked:
            return
        with self._gate:
            if self._closed:
                return
            self._closed = True
            ended = Waited[None](closing())
            ended.start(self._loop)
        try:
            ended.result()
        finally:
            self.end()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
