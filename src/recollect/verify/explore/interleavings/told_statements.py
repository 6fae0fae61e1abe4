"""SQLite's statements as they are run, for the picture: in the event loop, in a job, or in a thread of a driver's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def told_statements(tell: Callable[[str], None], opened: Callable[[], None]) -> Iterator[None]:
    """Within this block, `opened` is called for each new connection, and `tell` gets what it runs, with the values."""
    real = sqlite3.connect

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = real(*arguments, **options)
        made.set_trace_callback(tell)
        opened()
        return made

    sqlite3.connect = sqlite3.dbapi2.connect = connect  # type: ignore[assignment]
    try:
        yield
    finally:
        sqlite3.connect = sqlite3.dbapi2.connect = real
