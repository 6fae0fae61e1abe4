"""The same store without async: one event loop on one background thread, and methods that wait for it.

    from recollect.sync import open_store

    with open_store("sqlite:///memory.db") as store:
        store.append("s1", [Message("user", "hello")])
        store.history("s1")

Any number of threads may share a store; their appends are grouped as those of tasks are. `close` refuses new calls and
lets those of other threads end. A store does not survive ``fork``: open it in the process that uses it.
"""

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, TypeVar, Unpack

from recollect import opening
from recollect.erasure import Erasure
from recollect.errors import OutcomeUnknown, RecollectError
from recollect.message import Message
from recollect.owner import Owner
from recollect.store import Durability, OpenOptions, Options, Receipt, SessionState, Store, Stored

GRACE_S = 1.0
"""Beyond its time limit, for a call that ends when its store is closed."""

Value = TypeVar("Value")


class SyncStore:
    """A store whose methods return when the work is done. Made by `open_store`."""

    def __init__(self, pending: Awaitable[Store], *, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recollect", daemon=True)
        self._thread.start()
        self._owner = Owner()
        self._gate = threading.Condition()
        self._under_way: set[Future[Any]] = set()
        self._closing = False
        self._closed = False
        try:
            self._store = self._wait(_await(pending))
        except BaseException:
            self._end_loop()
            raise

    def append(
        self, session: str, messages: Sequence[Message], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        return self._wait(self._store.append(session, messages, turn=turn, expect=expect))

    def history(self, session: str, *, last: int | None = None, after: int | None = None) -> list[Stored]:
        return self._wait(self._store.history(session, last=last, after=after))

    def forget(self, session: str, *, erase: bool = False) -> Erasure | None:
        return self._wait(self._store.forget(session, erase=erase))

    def state(self, session: str) -> SessionState:
        return self._wait(self._store.state(session))

    def sweep(self) -> int:
        return self._wait(self._store.sweep())

    def sessions(self) -> Iterator[str]:
        names = self._store.sessions()
        end = object()

        async def following() -> object:
            return await anext(names, end)

        while isinstance(name := self._wait(following()), str):
            yield name

    @property
    def identity(self) -> str:
        return self._store.identity

    @property
    def durability(self) -> Durability:
        return self._store.durability

    @property
    def notice(self) -> str | None:
        return self._store.notice

    def close(self) -> None:
        """Returns when the calls under way have ended and the store is closed, whichever thread closes it.

        In a fork this does nothing: the loop, its thread and the connections are those of the parent.
        """
        if self._owner.forked:
            return
        with self._gate:
            if self._closing:
                self._gate.wait_for(lambda: self._closed)
                return
            self._closing = True
        try:
            self._let_calls_end()
            asyncio.run_coroutine_threadsafe(self._store.close(), self._loop).result()
        finally:
            self._end_loop()
            with self._gate:
                self._closed = True
                self._gate.notify_all()

    def _let_calls_end(self) -> None:
        """Each has a time limit of its own; what is still there after it is given up, so that nobody waits for ever."""
        with self._gate:
            self._gate.wait_for(lambda: not self._under_way, self._timeout_s + GRACE_S)
            left = list(self._under_way)
        for call in left:
            call.cancel()

    def __enter__(self) -> "SyncStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        if self._owner.forked:  # before the lock, which another thread of the parent may have had
            work.close()
            self._owner.check()
        with self._gate:
            if self._closing:
                work.close()
                raise RecollectError("the store is closed")
            call = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._under_way.add(call)
        call.add_done_callback(self._ended)
        try:
            return call.result()
        except CancelledError as error:
            raise OutcomeUnknown(
                "the store was closed before the call ended; retry with the same turn id"
            ) from error

    def _ended(self, call: "Future[Any]") -> None:
        with self._gate:
            self._under_way.discard(call)
            if not self._under_way:
                self._gate.notify_all()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _await(pending: Awaitable[Value]) -> Value:
    return await pending


def open_store(url: str, **options: Unpack[OpenOptions]) -> SyncStore:
    """`recollect.open_store` with the same options, for code without async."""
    pending = opening.open_store(url, **options)
    return SyncStore(pending, timeout_s=options.get("timeout_s", Options().timeout_s))
