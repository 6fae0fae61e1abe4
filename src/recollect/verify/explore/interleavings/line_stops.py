"""Stops a thread at each line of some files: by `sys.monitoring` where there is one (3.12), else by `sys.settrace`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Protocol

OnLine = Callable[[str, int], None]
"""Called with the file and the line that is next; it may wait, or raise."""


class LineStops(Protocol):
    def watching(self, on_line: OnLine) -> Any:
        """While the block lasts, the calling thread stops at each line."""
        ...

    def close(self) -> None: ...


def line_stops(files: set[str]) -> LineStops:
    """`files` may grow until the first thread is watched."""
    if sys.version_info >= (3, 12):
        for number in _FREE_TOOLS:
            if sys.monitoring.get_tool(number) is None:
                return ByMonitoring(files, number)
    return ByTracing(files)


class ByTracing:
    def __init__(self, files: set[str]) -> None:
        self._files = files

    @contextmanager
    def watching(self, on_line: OnLine) -> Iterator[None]:
        def on_event(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                on_line(frame.f_code.co_filename, frame.f_lineno)
            return on_event

        def on_call(frame: FrameType, event: str, argument: object) -> Any:
            return on_event if frame.f_code.co_filename in self._files else None

        sys.settrace(on_call)
        try:
            yield
        finally:
            sys.settrace(None)

    def close(self) -> None:
        """Nothing outlives a block."""


if sys.version_info >= (3, 12):
    _FREE_TOOLS = (3, 4)
    """Debuggers, coverage, profilers and optimizers have the others."""

    class ByMonitoring:
        """Other files' lines are switched off where they are first met, so they cost nothing from then on."""

        def __init__(self, files: set[str], tool: int) -> None:
            self._files, self._tool = files, tool
            self._watched: dict[int, OnLine] = {}
            sys.monitoring.use_tool_id(tool, "recollect")
            sys.monitoring.register_callback(tool, sys.monitoring.events.LINE, self._line)
            sys.monitoring.set_events(tool, sys.monitoring.events.LINE)
            sys.monitoring.restart_events()

        @contextmanager
        def watching(self, on_line: OnLine) -> Iterator[None]:
            me = threading.get_ident()
            self._watched[me] = on_line
            try:
                yield
            finally:
                del self._watched[me]

        def _line(self, code: CodeType, line: int) -> Any:
            if code.co_filename not in self._files:
                return sys.monitoring.DISABLE
            on_line = self._watched.get(threading.get_ident())
            if on_line is not None:
                on_line(code.co_filename, line)
            return None

        def close(self) -> None:
            sys.monitoring.set_events(self._tool, 0)
            sys.monitoring.register_callback(self._tool, sys.monitoring.events.LINE, None)
            sys.monitoring.free_tool_id(self._tool)
