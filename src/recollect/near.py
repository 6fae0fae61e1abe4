"""Calls of a synchronous store that run on the caller's own thread, where the engine allows it.

Handing a call to the store's event loop, and being woken by it, takes two changes of thread: as long as a server
nearby takes to answer. So a store may lend a second self (`NearCalls`) whose methods wait for the engine themselves.
They never suspend, so they need no loop: `run_here` takes them to their end. One caller at a time has it; all others go
through the loop, which groups their writes.
"""

import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, runtime_checkable

from recollect.store import Store

Value = TypeVar("Value")
Call = Callable[[Store], Coroutine[Any, Any, Value]]


class NotHere(Exception):
    """The call has to go through the store's loop. Nothing of it was written."""


class NearCalls(Protocol):
    def run(self, call: Call[Value]) -> Value:
        """The result of ``call(store)``, or `NotHere`, at once if somebody else is calling."""

    def close(self, timeout_s: float) -> bool:
        """Waits for a running call, at most this long, and lets no other begin; False if it did not end in time."""


@runtime_checkable
class Lending(Protocol):
    """A store that may have a `NearCalls`."""

    async def near(self) -> NearCalls | None:
        """None where every call has to go through the loop."""


POLL_S = 0.002
"""How often whoever closes looks whether a call has ended."""


class NearTurn:
    """A caller's, while its call runs. Whoever has it sets `over`, an assignment, which no signal can interrupt."""

    __slots__ = ("__weakref__", "over")

    def __init__(self) -> None:
        self.over = False


def _nobody() -> NearTurn | None:
    return None


class NearTurns:
    """One caller at a time; the others are told at once, and take the other way.

    Whose turn it is, is a weak reference to something that the caller's frame holds: a caller who was interrupted
    before it could say that it has ended is gone anyway.
    """

    def __init__(self) -> None:
        self._gate = threading.RLock()
        """Of whose turn it is. Never held while a call runs, and not waited for by whoever closes: the holder may be in
        a signal's handler, which closes and waits for that."""
        self._whose: Callable[[], NearTurn | None] = _nobody
        self._closed = False

    def begin(self) -> NearTurn | None:
        """None if it is somebody else's turn, or nobody's any more."""
        turn = NearTurn()
        mine = weakref.ref(turn)
        try:
            with self._gate:
                if self._closed or self._is_taken():
                    return None
                self._whose = mine
            return turn
        except BaseException:
            turn.over = True
            raise

    def close(self, timeout_s: float) -> bool:
        """Lets nobody begin any more; False if a call did not end in time."""
        self._closed = True
        deadline = time.monotonic() + timeout_s
        while not self._is_over():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _is_over(self) -> bool:
        """Whether nobody's call runs, nor is about to."""
        if not self._gate.acquire(blocking=False):
            return False
        try:
            return not self._is_taken()
        finally:
            self._gate.release()

    def _is_taken(self) -> bool:
        turn = self._whose()
        return turn is not None and not turn.over


def run_here(work: Coroutine[Any, Any, Value]) -> Value:
    """Runs a coroutine that waits for nothing that a loop would have to bring."""
    try:
        while True:
            # A bare yield, as of asyncio.sleep(0), lets others run: here there are none.
            waited = work.send(None)
            assert waited is None, "a call that needs an event loop was made without one"
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    finally:
        work.close()
