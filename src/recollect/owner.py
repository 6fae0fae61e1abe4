"""A store belongs to the process that opened it.

A fork has copies of its parent's connections, locks and counters. Two processes on one connection answer each other's
calls, and SQLite's locks are not inherited: both would acknowledge what one of them overwrites. So every call looks
first, and in a fork it is refused before anything is sent.
"""

import os

from recollect.errors import Refused

FORKED = "a store does not survive fork: open it in this process"


class Owner:
    """The process that opened a store."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def forked(self) -> bool:
        return os.getpid() != self._process

    def check(self) -> None:
        if os.getpid() != self._process:
            raise Refused(FORKED)
