"""An event loop that stops whenever every task waits, and asks what happens next.

asyncio itself is deterministic: its ready queue is first in, first out, and we never reorder it. Connections, jobs for
threads, and time are taken out of its hands: they become steps of the `Stepper` that owns the loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import selectors
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from recollect.verify.explore.interleavings.held_connection import ACTOR, RUNNING

_STEP = "TaskStepMethWrapper"
"""The callback of a task that begins or has let others go first; one that waited for something has another."""


@dataclass(eq=False)
class ThreadJob:
    """A function for a thread."""

    actor: str
    name: str
    submit: Callable[[], concurrent.futures.Future[Any]]
    future: asyncio.Future[Any]
    number: int
    operation: str
    setup: bool
    """It affects nobody else, such as looking up a host's address."""
    running: concurrent.futures.Future[Any] | None = None


class Stepper(Protocol):
    """Decides what happens next."""

    now: float
    jobs: list[ThreadJob]
    from_threads: list[asyncio.Handle]
    pool: concurrent.futures.ThreadPoolExecutor

    def yields(self, handle: asyncio.Handle) -> bool:
        """A task lets others go first, as with `asyncio.sleep(0)`; whether it goes on only when that is chosen."""
        ...

    def quiescent(self) -> None:
        """Nothing is left to run: makes one thing happen."""
        ...

    def connect(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, protocol: Any
    ) -> asyncio.Transport: ...

    def out_of_sight(self, what: str) -> None:
        """Something happens that is not under control."""
        ...


class _Quiet(selectors.DefaultSelector):
    """Never waits: a loop that would wait has nothing left to run."""

    def __init__(self, stepper: Stepper) -> None:
        super().__init__()
        self._stepper = stepper
        self.has_work: Callable[[], bool] = lambda: True
        """Whether the loop has something to run."""

    def select(self, timeout: float | None = None) -> list[Any]:
        """One thing after the other happens, until there is something to run."""
        if timeout is not None and timeout <= 0:
            return []
        if ready := self.outside(0):
            return ready
        while True:
            self._stepper.quiescent()
            if self.has_work() or self.has_strangers:
                return []

    @property
    def has_strangers(self) -> bool:
        """Whether there is anything but the loop's own wake-up socket, to which nobody writes: what comes from other
        threads is kept for a step."""
        return len(self.get_map()) > 1

    def outside(self, timeout_s: float) -> list[Any]:
        """Events that drivers wait for by themselves, if any have come."""
        return super().select(timeout_s) if self.has_strangers else []


class SteppedLoop(asyncio.SelectorEventLoop):
    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._kept: list[asyncio.Task[Any]] = []
        self._looked_at = 0
        self._under_way: list[asyncio.Task[Any]] = []
        """Of those looked at so far, the ones that had not ended: a store keeps thousands."""
        self._jobs_made = 0
        self._going_on: set[asyncio.Handle] = set()
        """Steps of tasks that begin, or whose turn was chosen."""
        self.timers_set = 0
        self._quiet = _Quiet(stepper)
        super().__init__(self._quiet)
        self._quiet.has_work = self._has_work
        self.set_task_factory(self._make_task)

    def begin_schedule(self) -> None:
        self._jobs_made = 0

    def _make_task(self, loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        """Tasks are kept as long as the store, so that a store that compares their ids never sees one twice."""
        self._kept.append(asyncio.Task(work, loop=loop, **options))
        self._going_on.update(self._ready_steps[-1:])
        return self._kept[-1]

    @property
    def _ready_steps(self) -> list[asyncio.Handle]:
        ready: Iterable[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        return [handle for handle in ready if type(handle._callback).__name__ == _STEP]  # type: ignore[attr-defined]

    def _run_once(self) -> None:
        for handle in self._ready_steps:
            if handle not in self._going_on and self._stepper.yields(handle):
                self._ready.remove(handle)  # type: ignore[attr-defined]
        self._going_on.clear()
        super()._run_once()  # type: ignore[misc]

    def time(self) -> float:
        return self._stepper.now

    def next_timer(self) -> asyncio.TimerHandle | None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if not scheduled or not scheduled[0].cancelled():  # a heap, from which asyncio drops those at the top
            return scheduled[0] if scheduled else None
        return min((t for t in scheduled if not t.cancelled()), key=lambda t: t.when(), default=None)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        self.timers_set += 1
        return super().call_at(when, callback, *args, context=context)

    def waiting(self, within_s: float) -> tuple[int, int]:
        """How many tasks wait, and how many timers that go off within this time."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        soon = [t for t in timers if t.when() - self.time() <= within_s and not t.cancelled()]
        tasks = (*self._under_way, *self._kept[self._looked_at :])
        self._looked_at, self._under_way = len(self._kept), [task for task in tasks if not task.done()]
        return len(self._under_way), len(soon)

    def _has_work(self) -> bool:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        is_due = bool(scheduled) and scheduled[0].when() <= self._stepper.now
        return is_due or bool(self._ready)  # type: ignore[attr-defined]

    def run_handle(self, handle: asyncio.Handle) -> None:
        self._going_on.add(handle)
        self._ready.append(handle)  # type: ignore[attr-defined]

    def comes_from_outside(self, timeout_s: float) -> bool:
        """Waits for what drivers read by themselves; the loop takes it up next."""
        return bool(self._quiet.outside(timeout_s))

    # ---- what asyncio calls

    def _make_socket_transport(
        self, sock: Any, protocol: Any, waiter: Any = None, *, extra: Any = None, server: Any = None
    ) -> Any:
        made = self._stepper.connect(self, sock, protocol)
        self.call_soon(protocol.connection_made, made)
        if waiter is not None:
            self.call_soon(lambda: waiter.cancelled() or waiter.set_result(None))
        return made

    def _make_ssl_transport(self, *arguments: Any, **options: Any) -> Any:
        self._stepper.out_of_sight("a connection is encrypted")
        return super()._make_ssl_transport(*arguments, **options)  # type: ignore[misc]

    def _add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
        """A driver waits for its own socket, which is out of sight. The loop's own wake-up socket does not count."""
        if fd is not self._ssock and fd != self._ssock.fileno():  # type: ignore[attr-defined]
            self._stepper.out_of_sight("the driver reads its connection itself")
        return super()._add_reader(fd, callback, *args)  # type: ignore[misc]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        sock.setblocking(True)
        sock.connect(address)
        sock.setblocking(False)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        pool = executor or self._stepper.pool
        future = self.create_future()
        inner = getattr(func, "func", func)  # asyncio.to_thread wraps it twice
        for argument in getattr(func, "args", ()):
            inner = argument if callable(argument) else inner
            break
        name = getattr(inner, "__qualname__", "a function")
        setup = func in (socket.getaddrinfo, socket.getnameinfo)
        submit = partial(pool.submit, func, *args)
        job = ThreadJob(ACTOR.get(), name, submit, future, self._jobs_made, RUNNING.get(), setup)
        self._jobs_made += 1
        self._stepper.jobs.append(job)
        return future

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        if threading.get_ident() == self._thread_id:  # type: ignore[attr-defined]
            return self.call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        self._stepper.from_threads.append(handle)
        return handle
