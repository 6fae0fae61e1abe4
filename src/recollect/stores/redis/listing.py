"""The sessions that a scan has named so far: each is listed once, and a million of them take no memory of ours.

A scan may name a key twice, and names all of them again after a failover. So the keys are remembered: a few in memory,
many in a temporary file, which SQLite searches and sorts in a few megabytes. The file has no name from the moment it is
open, so nothing is left of it. Where no temporary file can be made, the keys stay in memory.
"""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path

from recollect.aside import aside
from recollect.errors import EngineUnavailable

HELD_MAX = 20_000
"""Keys in memory."""
PORTION = 1_000

_LATEST_FIRST = "SELECT key FROM seen WHERE updated > ? ORDER BY updated DESC, key DESC"


class SeenSessions:
    """Keys, and when each session was changed."""

    def __init__(self) -> None:
        self._held: dict[bytes, float] = {}
        self._file: sqlite3.Connection | None = None

    def unseen(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those that were not named before."""
        if self._file is None and len(self._held) > HELD_MAX:
            self._move_to_file()
        if self._file is None:
            fresh = [key for key in dict.fromkeys(keys) if key not in self._held]
            self._held.update(dict.fromkeys(fresh, 0.0))
            return fresh
        with _told():
            add = self._file.execute
            return [key for key in keys if add("INSERT OR IGNORE INTO seen VALUES (?, 0)", (key,)).rowcount]

    def changed(self, keys: Sequence[bytes], times: Sequence[float]) -> None:
        """When the sessions were changed."""
        if self._file is None:
            self._held.update(zip(keys, times, strict=True))
            return
        with _told():
            rows = zip(times, keys, strict=True)
            self._file.executemany("UPDATE seen SET updated = ? WHERE key = ?", rows)

    async def latest_first(self, after: float) -> AsyncIterator[list[bytes]]:
        """Those that were changed after a moment, some at a time."""
        if self._file is None:
            found = [key for key, time in self._held.items() if time > after]
            found.sort(key=lambda key: (self._held[key], key), reverse=True)
            yield found
            return
        with _told():
            rows = await aside(self._file.execute, _LATEST_FIRST, (after,))
            while some := await aside(rows.fetchmany, PORTION):
                yield [key for (key,) in some]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _move_to_file(self) -> None:
        try:
            number, path = tempfile.mkstemp(prefix="recollect-")
        except OSError:
            return
        os.close(number)
        with _told():
            # One statement runs at a time, but not always on the same thread.
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = OFF")
            self._file.execute("PRAGMA synchronous = OFF")
            self._file.execute("CREATE TABLE seen (key BLOB PRIMARY KEY, updated REAL) WITHOUT ROWID")
            self._file.execute("BEGIN")
            Path(path).unlink()
            self._file.executemany("INSERT INTO seen VALUES (?, ?)", self._held.items())
        self._held = {}


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise EngineUnavailable(
            f"the list of sessions cannot be kept in {tempfile.gettempdir()}: {error}; free room there, or set TMPDIR"
        ) from error
