"""A fork while SQLite is at work.

SQLite notes in memory which locks the connections of a process have on a file. A forked child has a copy of these
notes, but not the locks. What another thread of the parent had locked at that moment would stay locked for ever for the
child's own connections to the same file; and what it was just reading, the child would read without a lock. So a fork
waits until nobody is in a transaction, nor opens or closes a file.
"""

import os
import threading
import time
import weakref

WAIT_MAX_S = 3.0
"""Whatever takes longer, such as rewriting a large file, a fork does not wait for."""


def at_work() -> "threading.RLock":
    """To be held while a connection is used. One for each: nobody waits for it but a fork, and not for its own
    thread."""
    lock = threading.RLock()
    _all.add(lock)
    return lock


_all: "weakref.WeakSet[threading.RLock]" = weakref.WeakSet()


class _Forking(threading.local):
    """What this thread holds while it forks."""

    def __init__(self) -> None:
        self.held: list[threading.RLock] = []


_this_thread = _Forking()


def _before() -> None:
    deadline = time.monotonic() + WAIT_MAX_S
    asked: list[threading.RLock] = []
    while new := [lock for lock in _known() if lock not in asked]:  # others may begin meanwhile
        asked += new
        for lock in new:
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                _this_thread.held.append(lock)


def _after() -> None:
    while _this_thread.held:
        _this_thread.held.pop().release()


def _known() -> "list[threading.RLock]":
    while True:
        try:
            return list(_all)
        except RuntimeError:  # another thread has added one
            continue


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
