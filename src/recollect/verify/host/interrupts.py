"""Ctrl-C at a bad moment, put off until a better one; and being terminated, which is much the same."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """An interrupt during this block is raised at its end. For short work that must not be left half done, such as
    ending the processes that an interrupt is about to orphan."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets interrupts
        return
    came: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Within this block, who is terminated (SIGTERM) can still say what it knows, like one that is interrupted."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextlib.contextmanager
def not_inherited() -> Iterator[None]:
    """A process started in this block ignores the interrupts that a terminal sends to its whole group, until it asks
    for them (`taken_again`)."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def taken_again() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
