"""The same store without async: one event loop on one background thread, and methods that wait for it.

    from recollect.sync import open_store

    with open_store("sqlite:///memory.db") as store:
        store.append("s1", [Message("user", "hello")])
        store.history("s1")

Any number of threads may share a store; their appends are grouped as those of tasks are. A store does not survive
``fork``: open it in the process that uses it.
"""

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from recollect import opening
from recollect.errors import RecollectError
from recollect.message import Message
from recollect.owner import Owner
from recollect.store import Durability, Receipt, SessionState, Store, Stored

Value = TypeVar("Value")


class SyncStore:
    """A store whose methods return when the work is done. Made by `open_store`."""

    def __init__(self, pending: Awaitable[Store]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recollect", daemon=True)
        self._thread.start()
        self._owner = Owner()
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

    def forget(self, session: str) -> None:
        self._wait(self._store.forget(session))

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
        """In a fork this does nothing: the loop, its thread and the connections are those of the parent."""
        if self._closed or self._owner.forked:
            return
        try:
            self._wait(self._store.close())
        finally:
            self._closed = True
            self._end_loop()

    def __enter__(self) -> "SyncStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        if self._closed or self._owner.forked:
            work.close()
            self._owner.check()
            raise RecollectError("the store is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _await(pending: Awaitable[Value]) -> Value:
    return await pending


def open_store(url: str, **options: Any) -> SyncStore:
    """`recollect.open_store` with the same options, for code without async."""
    return SyncStore(opening.open_store(url, **options))
