"""Locks and pauses that the scheduler knows: a thread that would wait for a lock is not among the choices.

A store gets them in place of `threading.Lock` and `RLock`; everybody else gets real ones. Drivers hold none of their
own locks while a thread is at a line of the store's code, so those cannot get in the way.

Whoever calls `time.sleep` gives the others time, as a store does that tries again when it finds a lock taken: they go
on meanwhile. A thread that is held for as long as another one tries would be our doing, not the store's.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any, Protocol, SupportsIndex

_RealLock, _RealRLock, _real_sleep = threading.Lock, threading.RLock, time.sleep
_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())
_AWAY_S = 0.001


class Waiting(Protocol):
    """Who decides which thread goes on."""

    def wait_for(self, lock: KnownLock) -> bool:
        """Makes the calling thread wait until it is chosen again; False if it is not one of the scheduler's."""
        ...

    def pause(self) -> None:
        """Lets the others go on, if the calling thread is one of the scheduler's."""
        ...


class KnownLock:
    """A lock, re-entrant or not. Only one thread runs at a time, so plain attributes will do."""

    def __init__(self, scheduler: Waiting, *, reentrant: bool) -> None:
        self._scheduler, self._reentrant = scheduler, reentrant
        self.owner: int | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = threading.get_ident()
        while self.owner is not None and not (self._reentrant and self.owner == me):
            if not blocking:
                return False
            if not self._scheduler.wait_for(self):
                _real_sleep(_AWAY_S)
        self.owner, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        if self.owner is None:
            raise RuntimeError("release unlocked lock")
        self._depth -= 1
        if self._depth == 0:
            self.owner = None

    def locked(self) -> bool:
        return self.owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # What `threading.Condition` asks of a re-entrant lock.

    def _is_owned(self) -> bool:
        return self.owner == threading.get_ident()

    def _release_save(self) -> int:
        depth, self._depth, self.owner = self._depth, 0, None
        return depth

    def _acquire_restore(self, depth: int) -> None:
        self.acquire()
        self._depth = depth


@contextmanager
def known_locks(scheduler: Waiting, files: set[str]) -> Iterator[None]:
    """Within this block, locks made by code in these files are known ones, and so is every sleep; `files` may grow."""

    def make(reentrant: bool) -> Any:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename == threading.__file__:
            frame = frame.f_back
        if frame is not None and frame.f_code.co_filename in files:
            return KnownLock(scheduler, reentrant=reentrant)
        return _RealRLock() if reentrant else _RealLock()

    threading.Lock = lambda: make(False)  # type: ignore[assignment]
    threading.RLock = lambda: make(True)  # type: ignore[assignment]
    time.sleep = _known_sleep(scheduler)
    try:
        yield
    finally:
        threading.Lock, threading.RLock, time.sleep = _RealLock, _RealRLock, _real_sleep


def _known_sleep(scheduler: Waiting) -> Callable[[float | SupportsIndex], None]:
    def sleep(seconds: float | SupportsIndex) -> None:
        scheduler.pause()
        _real_sleep(seconds)

    return sleep


def adopt(scheduler: Waiting, module: ModuleType) -> None:
    """Replaces the locks that a module and its classes made on import, and the functions by which they make more."""
    own = [
        kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__
    ]
    for place in (module, *own):
        for name, value in list(vars(place).items()):
            if isinstance(value, _LOCK | _RLOCK):
                setattr(place, name, KnownLock(scheduler, reentrant=isinstance(value, _RLOCK)))
            elif value is _RealLock or value is _RealRLock:
                setattr(place, name, lambda r=value is _RealRLock: KnownLock(scheduler, reentrant=r))
            elif value is _real_sleep:
                setattr(place, name, _known_sleep(scheduler))
