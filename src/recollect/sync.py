"""The same store without async: one event loop on one background thread, and methods that wait for it (on Redis, a
thread that calls alone talks to the engine itself: `near`).

    from recollect.sync import open_store

    with open_store("sqlite:///memory.db") as store:
        store.append("s1", [Message("user", "hello")])
        store.history("s1")

Any number of threads may share a store; their appends are grouped like those of tasks. `close` refuses new calls and
lets running calls of other threads end. A store does not survive ``fork``: open it in the process that uses it.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, TypeVar, Unpack

from recollect import opening
from recollect.appending import Said
from recollect.erasure import ERASE_AGAIN, Erasure
from recollect.errors import OutcomeUnknown, StoreClosed, advising
from recollect.near import POLL_S, Call, Lending, NearCalls, NotHere
from recollect.owner import Owner
from recollect.store import (
    Description,
    Durability,
    OpenOptions,
    Options,
    Receipt,
    SessionState,
    Store,
    Stored,
)
from recollect.waiting import Waited

GRACE_S = 1.0
"""Beyond its time limit, for a call that is still running when its store is closed."""

Value = TypeVar("Value")


class SyncStore:
    """A store whose methods return when the work is done. Made by `open_store`."""

    def __init__(self, pending: Awaitable[Store], *, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._owner = Owner()
        self._asked: set[Waited[Any]] = set()
        """Calls that the loop's thread may not have seen yet. An interrupted caller may leave its own here."""
        self._under_way: set[Waited[Any]] = set()
        self._all_ended = asyncio.Event()
        """No call is under way, while the store is being closed."""
        self._closing = False
        self._close_failed: BaseException | None = None
        self._near: NearCalls | None = None
        self._thread = threading.Thread(target=self._run_loop, name="recollect", daemon=True)
        self._thread.start()
        try:
            self._store = self._wait(_await(pending))
            if isinstance(self._store, Lending):
                self._near = self._wait(self._store.near())
        except BaseException:
            self._end_loop()
            raise

    def append(
        self, session: str, messages: Sequence[Said], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `recollect.store.MemoryStore.append`."""
        return self._call(lambda store: store.append(session, messages, turn=turn, expect=expect))

    def append_many(
        self,
        turns: Mapping[str, Sequence[Said]],
        *,
        turn: str | None = None,
        expect: Mapping[str, int] | None = None,
    ) -> dict[str, Receipt]:
        """See `recollect.store.Spanning.append_many`."""
        return self._call(lambda store: store.append_many(turns, turn=turn, expect=expect))

    def history(self, session: str, *, last: int | None = None, after: int | None = None) -> list[Stored]:
        """See `recollect.store.MemoryStore.history`."""
        return self._call(lambda store: store.history(session, last=last, after=after))

    def find(self, session: str, message_id: str) -> Stored | None:
        """See `recollect.store.Findable.find`."""
        return self._call(lambda store: store.find(session, message_id))

    def position(self, session: str) -> int:
        """See `recollect.store.Positioned.position`."""
        return self._call(lambda store: store.position(session))

    def forget(self, session: str, *, expect: int | None = None, erase: bool = False) -> Erasure | None:
        """See `recollect.store.Store.forget`."""
        if erase:  # the engine rewrites its files, and is asked now and then whether it has done so
            with advising(ERASE_AGAIN):
                return self._wait(self._store.forget(session, expect=expect, erase=True))
        with advising("forget again"):
            return self._call(lambda store: store.forget(session, expect=expect))

    def retract(
        self, session: str, *sequences: int, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `recollect.store.Retractable.retract`."""
        return self._call(lambda store: store.retract(session, *sequences, turn=turn, expect=expect))

    def replace(
        self,
        session: str,
        messages: Sequence[Said],
        *,
        turn: str | None = None,
        expect: int | None = None,
    ) -> Receipt:
        """See `recollect.store.Replaceable.replace`."""
        return self._call(lambda store: store.replace(session, messages, turn=turn, expect=expect))

    def fork(
        self,
        session: str,
        new: str,
        *,
        upto: int | None = None,
        turn: str | None = None,
        expect: int | None = None,
    ) -> Receipt:
        """See `recollect.store.Forkable.fork`."""
        return self._call(lambda store: store.fork(session, new, upto=upto, turn=turn, expect=expect))

    def describe(self, session: str) -> Description:
        """See `recollect.store.Describable.describe`."""
        return self._call(lambda store: store.describe(session))

    def annotate(
        self, session: str, metadata: Mapping[str, Any], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `recollect.store.Describable.annotate`."""
        return self._call(lambda store: store.annotate(session, metadata, turn=turn, expect=expect))

    def state(self, session: str) -> SessionState:
        """See `recollect.store.Expiring.state`."""
        return self._call(lambda store: store.state(session))

    def sweep(self) -> int:
        """See `recollect.store.Expiring.sweep`."""
        with advising("sweep again"):
            return self._wait(self._store.sweep())

    def sessions(self, *, prefix: str | None = None, updated_after: float | None = None) -> Iterator[str]:
        """See `recollect.store.Listable.sessions`."""
        names = self._store.sessions(prefix=prefix, updated_after=updated_after)
        end = object()

        async def following() -> object:
            return await anext(names, end)

        while isinstance(name := self._wait(following()), str):
            yield name

    def run(self, work: Callable[[Store], Coroutine[Any, Any, Value]]) -> Value:
        """Runs ``work(store)`` on the store's loop and returns its result: for several steps written with await."""
        return self._wait(work(self._store))

    @property
    def identity(self) -> str:
        """The UUID the store was given when it was first opened: another one means another memory."""
        return self._store.identity

    @property
    def durability(self) -> Durability:
        """The least that every receipt of this store promises."""
        return self._store.durability

    @property
    def notice(self) -> str | None:
        """What could be lost with the engine's settings, or None; logged once at open."""
        return self._store.notice

    def close(self) -> None:
        """Returns when running calls have ended and the store is closed, whichever thread closes it; on the loop's
        thread at once, since what runs there has to end first.

        In a fork this does nothing: the loop, its thread and the connections belong to the parent.
        """
        if self._owner.forked:
            return
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._begin_closing)
        if threading.current_thread() is self._thread:
            return
        self._thread.join()
        failed, self._close_failed = self._close_failed, None
        if failed is not None:
            raise failed

    def __enter__(self) -> "SyncStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> NoReturn:
        self.close()
        raise TypeError(
            "recollect.sync.open_store() needs `with`; with async, use `async with recollect.open_store(url) as store`"
        )

    async def __aexit__(self, *_: object) -> None:
        """`async with` looks this up before it calls `__aenter__`."""

    def _call(self, call: Call[Value]) -> Value:
        """On this thread, if the store can do that and nobody else is calling; else on the store's loop."""
        if self._near is not None and not self._under_way and not self._closing and not self._owner.forked:
            try:
                return self._near.run(call)
            except NotHere:
                pass
        return self._wait(call(self._store))

    def _wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        if self._owner.forked:
            work.close()
            self._owner.check()
        call = Waited(work)
        self._asked.add(call)
        try:
            self._loop.call_soon_threadsafe(self._begin, call)
        except RuntimeError:  # it is closed
            self._asked.discard(call)
            call.refuse(StoreClosed())
        try:
            return call.result()
        except asyncio.CancelledError as error:
            raise OutcomeUnknown("the store was closed before the call ended") from error

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # ---- on the loop's thread: nobody who is interrupted leaves others waiting, nor waits for others in a handler

    def _begin(self, call: Waited[Any]) -> None:
        self._asked.discard(call)
        if self._closing:
            call.refuse(StoreClosed())
            return
        self._under_way.add(call)
        call.begin(self._loop, self._ended)

    def _ended(self, call: Waited[Any]) -> None:
        self._under_way.discard(call)
        if self._closing and not self._under_way:
            self._all_ended.set()

    def _begin_closing(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._under_way:
            self._all_ended.set()
        self._task = self._loop.create_task(self._close())

    async def _close(self) -> None:
        try:
            deadline = self._loop.time() + self._timeout_s + GRACE_S
            near = self._near
            while near is not None and not near.close(0) and self._loop.time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)  # its caller, who may be interrupted at any step, tells nobody
            await self._let_calls_end(deadline)
            await self._store.close()
        except BaseException as error:
            self._close_failed = error
        finally:
            self._loop.stop()

    async def _let_calls_end(self, deadline: float) -> None:
        """Each call has its own time limit; one that outlives it is abandoned, so that nobody waits for ever."""
        for end in (deadline, deadline + GRACE_S):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await self._all_ended.wait()
            for call in list(self._under_way):
                call.cancel()

    def _run_loop(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
            for call in list(self._asked):
                call.refuse(StoreClosed())


async def _await(pending: Awaitable[Value]) -> Value:
    return await pending


def open_store(url: str, **options: Unpack[OpenOptions]) -> SyncStore:
    """`recollect.open_store` with the same options, for code without async."""
    pending = opening.open_store(url, **options)
    return SyncStore(pending, timeout_s=options.get("timeout_s", Options().timeout_s))
