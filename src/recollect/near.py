"""Calls of a synchronous store that run on the caller's own thread, where the engine allows it.

Handing a call to the store's event loop, and being woken by it, takes two changes of thread: as long as a server
nearby takes to answer. So a store may lend a second self (`NearCalls`) whose methods wait for the engine themselves.
They never suspend, so they need no loop: `run_here` takes them to their end. One caller at a time has it; all others go
through the loop, which groups their writes.
"""

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

    def close(self, timeout_s: float) -> None:
        """Waits for a running call, at most this long, and lets no other begin."""


@runtime_checkable
class Lending(Protocol):
    """A store that may have a `NearCalls`."""

    async def near(self) -> NearCalls | None:
        """None where every call has to go through the loop."""


def run_here(work: Coroutine[Any, Any, Value]) -> Value:
    """Runs a coroutine that waits for nothing that a loop would have to bring."""
    try:
        while True:
            waited = work.send(
                None
            )  # a bare yield, as of asyncio.sleep(0), lets others run: here there are none
            assert waited is None, "a call that needs an event loop was made without one"
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    finally:
        work.close()
