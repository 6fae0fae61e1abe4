"""A store belongs to the process and the event loop that opened it.

A forked process has copies of its parent's connections, locks and counters. Two processes on one connection get each
other's answers, and SQLite's locks are not inherited: both would acknowledge what one of them overwrites. So every
call checks first, and in a fork it is refused before anything is sent. In another event loop, the answer a call waits
for would go to a loop that is not running: the call would wait for ever, or fail halfway.
"""

import asyncio
import contextlib
import os
from collections.abc import Coroutine
from typing import Any

from recollect.errors import Refused

FORKED = "a store does not survive fork: open it in this process"
OTHER_LOOP = "a store belongs to the event loop that opened it: open it in this one, or use recollect.sync"
CLOSE_THERE = "a store belongs to the event loop that opened it: close it there, before that loop ends"


_forks = 0
"""How many forks lead from the first process to this one. Asking the system who we are costs more, with every call."""


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Owner:
    """The process that opened a store, and the event loop, if it was made in one."""

    __slots__ = ("_forks", "_loop")

    def __init__(self, *, any_loop: bool = False) -> None:
        self._forks = _forks
        self._loop: asyncio.AbstractEventLoop | None = None
        if any_loop:
            return
        with contextlib.suppress(RuntimeError):  # made in a thread without a loop; `take_loop` sets it later
            self.take_loop()

    def take_loop(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def forked(self) -> bool:
        return _forks != self._forks

    def check(self) -> None:
        if _forks != self._forks:
            raise Refused(FORKED)
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise Refused(OTHER_LOOP)

    def may_close(self, *, after_loop: bool = False) -> bool:
        """False in a fork, where the connections belong to the parent; another event loop is refused.

        `after_loop` is for stores without sockets: they can also be closed once their loop is over.
        """
        if self.forked:
            return False
        if self._loop is None or asyncio.get_running_loop() is self._loop:
            return True
        if after_loop and self._loop.is_closed():
            return True
        raise Refused(CLOSE_THERE)


_closing: set[asyncio.Task[None]] = set()
"""The loop itself keeps only weak references."""


async def to_its_end(closing: Coroutine[Any, Any, None]) -> None:
    """Closing happens once: if its caller gives up, it goes on, or the connections would stay open for ever."""
    task = asyncio.get_running_loop().create_task(closing)
    _closing.add(task)
    task.add_done_callback(_closing.discard)
    await asyncio.shield(task)


def can_end(task: "asyncio.Future[None]") -> bool:
    """Whether it is worth waiting for: a task whose loop was closed under it never ends."""
    return not task.done() and not task.get_loop().is_closed()
