"""Following the lines of a store's own code, to die or stop on exactly one of them.

A worker is killed "between the two writes of a turn" by naming the line between them. Watched are the files that
define the store's class and its factory, and, if the store is a thin adapter, the framework's class that it holds.
Drivers are not watched.
"""

import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from recollect.verify.target.pipe import How

VISITS_MAX = 3
"""A line is counted up to its third visit: further rounds of a loop are alike."""


def files_of(*things: Any) -> frozenset[str]:
    """The source files that define these objects or their classes and base classes."""
    found = set()
    for thing in things:
        kind = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
        for part in inspect.getmro(kind) if inspect.isclass(kind) else (kind,):
            if part.__module__.partition(".")[0] in sys.stdlib_module_names:
                continue
            try:
                found.add(inspect.getfile(part))
            except TypeError:  # built-in: no source
                continue
    return frozenset(found)


DRIVERS = frozenset(
    {"redis", "valkey", "asyncpg", "psycopg", "psycopg2", "psycopg_pool", "pg8000", "aiosqlite", "sqlalchemy",
     "chromadb", "httpx", "httpcore", "requests", "urllib3", "aiohttp", "pydantic", "orjson", "msgspec"}
)  # fmt: skip
"""Packages whose lines the store's authors cannot fix."""


def wrapped_by(store: Any) -> list[Any]:
    """The framework objects that a store adapts: what it holds from a package that is neither its own, nor Python's,
    nor a driver."""
    own = _package_of(type(store))
    held = getattr(store, "__dict__", {})
    return [
        thing
        for thing in held.values()
        if _package_of(type(thing)) not in (own, *DRIVERS, *sys.stdlib_module_names)
    ]


def _package_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]


class LineWatch:
    """Traces one operation. `reached` is called with the line; with `die` the process ends on the spot."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = frozenset(files)
        self.seen: list[str] = []
        self._visits: dict[str, int] = {}
        self._how: How = "record"
        self._line = ""
        self._reached: Callable[[str], None] | None = None

    def arm(self, how: How, line: str, reached: Callable[[str], None]) -> None:
        self._how, self._line, self._reached = how, line, reached
        self.seen = []
        self._visits = {}

    def __enter__(self) -> "LineWatch":
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _visited(self, line: str) -> str:
        """The line, numbered from its second visit on: ``file.py:17``, ``file.py:17#2``."""
        visits = self._visits[line] = self._visits.get(line, 0) + 1
        return line if visits == 1 else f"{line}#{visits}"

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._on_line if frame.f_code.co_filename in self._files else None

    def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            line = self._visited(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
            if self._how in ("record", "step"):
                if self._visits[line.partition("#")[0]] <= VISITS_MAX:
                    self.seen.append(line)
                    if self._how == "step" and self._reached is not None:
                        self._reached(line)
            elif line == self._line:
                if self._how == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                elif self._reached is not None:
                    reached, self._reached = self._reached, None  # once
                    reached(line)
        return self._on_line
