"""Notices that the files under an open store were taken away.

SQLite goes on writing to a deleted file without any error, and what it acknowledges then is gone with the process. The
same goes for the log (``-wal``), which holds the newest messages until a checkpoint moves them into the database
itself. A log that was cut short is worse: a write leaves a hole in the gap, and the next checkpoint copies that over
good pages. So the guard checks before each write, after each commit, and before each read.

Which file is meant. Checking that the paths still name the files that were opened takes a walk through the folders for
each, so it is done when the folder has changed, and every `PATHS_CHECK_S` in case a folder further up was moved or
mounted over. The ``-shm`` is checked as well: without it, two processes overwrite each other.

Which cut is wrong. A log only ever grows until it starts over with a new header: SQLite shortens it only then (a size
limit), or to nothing (a truncating checkpoint). So a log that is shorter under the same header was cut by somebody
else; and if nothing is left of it, SQLite is asked whether it still relies on anything in there.

Not noticed: a log that another program appended to after it was cut, a cut while the log is being written, and files
that were overwritten in place with others of the same kind.
"""

import os
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recollect.stores.sqlite.file import is_locked

PATHS_CHECK_S = 0.05
FOLDER_SETTLED_NS = 20_000_000
"""Folder times tick every few milliseconds: a second change within one tick leaves the time as it was."""

_HEADER_BYTES = 32
_MAGICS = {0x377F0682: "<6I", 0x377F0683: ">6I"}
"""How a header begins, and the byte order of its checksum."""


class FileGuard:
    """The files of one open database. `log` says whether it has a ``-wal``; SQLite must have opened it already."""

    def __init__(self, path: Path, *, log: bool) -> None:
        self._path = str(path)
        self._real_path = os.path.realpath(path)  # where SQLite puts its other files, if the path is a link
        self._log_path = f"{self._real_path}-wal"
        paths = [self._path, *([self._log_path, f"{self._real_path}-shm"] if log else [])]
        self._identities = [(name, _identity(name)) for name in paths]
        self._folder = os.open(os.path.dirname(self._real_path), os.O_RDONLY | os.O_CLOEXEC)  # noqa: PTH120
        # Safe to close: that would drop locks on the file, but SQLite has none on the log.
        self._log = os.open(self._log_path, os.O_RDONLY | os.O_CLOEXEC) if log else None
        self._seen = (b"", 0)
        """The log's header, and the log's length under it. One value, because two threads use it."""
        self._cut = False
        self._folder_changed_ns = 0
        self._paths_checked_at = 0.0

    def harm_before_read(self) -> str | None:
        """What happened to the files, as the beginning of a sentence; None if nothing did."""
        return self._moved() or self._shortened()

    def harm_before_write(self, *, locked: bool = False) -> str | None:
        """The same, as far as it must be known before a write. `locked`: nobody else can write right now."""
        return self._shortened(locked)

    def harm_after_commit(self) -> str | None:
        """The same, before it is acknowledged."""
        return self._moved() or self._torn()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Wraps the closing of the connections, and ends the guard.

        The last connection to close moves the log into the file; from a cut log it would move only some pages, which
        damages the file for good. So with a cut log the last one is a read-only connection. Whoever opens the file next
        recovers what is intact in the log.
        """
        last = self._reading() if self._shortened() and self._cut else None
        try:
            yield
        finally:
            if last is not None:
                last.close()
            for descriptor in (self._folder, self._log):
                if descriptor is not None:
                    os.close(descriptor)

    def _reading(self) -> sqlite3.Connection | None:
        if self._moved():
            return None
        connection = None
        with suppress(sqlite3.Error):  # the query may fail, but the connection has joined the others by then
            connection = sqlite3.connect(f"{Path(self._real_path).as_uri()}?mode=ro", uri=True, timeout=0)
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection

    def _moved(self) -> str | None:
        now = time.monotonic()
        changed_ns = os.fstat(self._folder).st_ctime_ns
        settled = not 0 <= time.time_ns() - changed_ns < FOLDER_SETTLED_NS
        fresh = now - self._paths_checked_at < PATHS_CHECK_S
        if settled and fresh and changed_ns == self._folder_changed_ns:
            return None
        for path, identity in self._identities:
            try:
                same = _identity(path) == identity
            except OSError:
                same = False
            if not same:
                return f"{path} was deleted or replaced"
        self._folder_changed_ns, self._paths_checked_at = changed_ns, now
        return None

    def _shortened(self, locked: bool = False) -> str | None:
        if self._log is None:
            return None
        header, size = self._seen  # read before the file: another thread's commit may be growing it
        length = os.lseek(self._log, 0, os.SEEK_END)
        if length >= size and not self._cut:
            if locked and not size:
                self._seen = (os.pread(self._log, _HEADER_BYTES, 0), length)
            return None
        found = os.pread(self._log, _HEADER_BYTES, 0)
        begun_anew = found != header and (_is_header(found) if found else self._emptied_rightly(header))
        if self._cut or not begun_anew:
            self._cut = True
            return self._cut_short()
        self._seen = (found, 0)
        return None

    def _torn(self) -> str | None:
        if self._log is None:
            return None
        header, size = self._seen
        length = os.lseek(self._log, 0, os.SEEK_END)
        found = os.pread(self._log, _HEADER_BYTES, 0)
        if found == header:
            # A size counts only if it was read after its header: after a new header, SQLite may still shorten the log.
            self._cut = self._cut or length < size
            self._seen = (header, max(size, length))
        elif _is_header(found) if found else self._emptied_rightly(header):
            self._seen = (found, 0)
        else:
            self._cut = True
        return self._cut_short() if self._cut else None

    def _cut_short(self) -> str:
        return f"{self._log_path} was cut short"

    def _emptied_rightly(self, header: bytes) -> bool:
        """Whether a checkpoint emptied the log. If SQLite still relies on pages in there, it cannot read them; unless
        somebody has begun it again meanwhile, after this header."""
        self._paths_checked_at = 0.0
        if self._moved():
            return False
        try:
            connection = sqlite3.connect(self._path, timeout=1.0, isolation_level=None)
            try:
                _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                connection.close()
        except sqlite3.Error as error:
            return is_locked(error)  # then we cannot tell yet; the next check will
        if pages <= 0:  # negative: another checkpoint is running
            return True
        assert self._log is not None
        found = os.pread(self._log, _HEADER_BYTES, 0)
        return found != header and _is_header(found)


def _is_header(raw: bytes) -> bool:
    """Whether SQLite wrote this as the beginning of a log: it ends with a checksum of itself."""
    if len(raw) < _HEADER_BYTES:
        return False
    order = _MAGICS.get(int.from_bytes(raw[:4], "big"))
    if order is None:
        return False
    words = struct.unpack(order, raw[:24])
    first = second = 0
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return struct.pack(">2I", first, second) == raw[24:]


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116
    return status.st_dev, status.st_ino
