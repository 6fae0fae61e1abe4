"""Faults that last for a `with` block, and say so when they were called without one."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import ParamSpec

_Given = ParamSpec("_Given")


def for_a_block(fault: Callable[_Given, Iterator[None]]) -> Callable[_Given, AbstractContextManager[None]]:
    """As `contextlib.contextmanager`; a call that never becomes a block breaks nothing, and a test that believes it did
    is green for no reason. So that is a RuntimeWarning, as for a coroutine that nobody awaits."""

    @functools.wraps(fault)
    def called(*given: _Given.args, **named: _Given.kwargs) -> AbstractContextManager[None]:
        return _Block(fault.__name__, contextlib.contextmanager(fault)(*given, **named))

    return called


class _Block(AbstractContextManager[None]):
    def __init__(self, name: str, block: AbstractContextManager[None]) -> None:
        self._name = name
        self._block = block
        self._entered = False

    def __enter__(self) -> None:
        self._entered = True
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)

    def __del__(self) -> None:
        if not self._entered:
            told = f"{self._name}() broke nothing: it lasts for a block, so write `with ….{self._name}(…):`"
            warnings.warn(told, RuntimeWarning, stacklevel=2)


def seconds_of(name: str, seconds: float) -> float:
    """A duration that was given to a fault, or ValueError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise ValueError(f"{name}({seconds!r}): give the seconds as a number, such as {name}(1.5)")
    return float(seconds)
