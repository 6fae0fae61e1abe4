"""A store belongs to the process and the event loop that opened it.

A fork has copies of its parent's connections, locks and counters. Two processes on one connection answer each other's
calls, and SQLite's locks are not inherited: both would acknowledge what one of them overwrites. So every call looks
first, and in a fork it is refused before anything is sent. In another event loop, what a call waits for would be told
to a loop that does not run: it would wait for ever, or fail halfway.
"""

import asyncio
import contextlib
import os

from recollect.errors import Refused

FORKED = "a store does not survive fork: open it in this process"
OTHER_LOOP = "a store belongs to the event loop that opened it: open it in this one, or use recollect.sync"


class Owner:
    """The process that opened a store, and the event loop, if it was made in one."""

    __slots__ = ("_loop", "_process")

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        with contextlib.suppress(RuntimeError):  # in a thread; `take_loop` says later which one it is for
            self.take_loop()

    def take_loop(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def forked(self) -> bool:
        return os.getpid() != self._process

    def check(self) -> None:
        if os.getpid() != self._process:
            raise Refused(FORKED)
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise Refused(OTHER_LOOP)
