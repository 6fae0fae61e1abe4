"""Bytes of a file that SQLite may have open in this process, read without taking SQLite's locks away.

Closing a file drops every lock that the process holds on it, whoever took them (POSIX). A store whose lock is gone does
not keep other processes from deleting its write-ahead log, and goes on writing to a log that nobody else sees: the file
is then damaged. So a descriptor that was opened here is kept until the file is deleted.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from recollect.regular_files import descriptor_of

_lock = threading.Lock()
_kept: dict[tuple[int, int], list[int]] = {}
"""Descriptors by device and inode. An inode whose file is open is not given to another file."""


def first_bytes(path: Path, size: int) -> bytes:
    """Raises OSError as `open` does."""
    with _lock:
        _let_go_of_deleted()
        found = path.stat()
        descriptors = _kept.get((found.st_dev, found.st_ino))
        if not descriptors:
            descriptor = descriptor_of(path)
            opened = os.fstat(descriptor)  # of another file, if it was swapped in between
            descriptors = _kept.setdefault((opened.st_dev, opened.st_ino), [])
            descriptors.append(descriptor)
        return os.pread(descriptors[-1], size, 0)


def _let_go_of_deleted() -> None:
    """Otherwise their room on the disk would not be freed; nobody new can open them, so no lock on them matters."""
    for key, descriptors in list(_kept.items()):
        if os.fstat(descriptors[0]).st_nlink == 0:
            del _kept[key]
            for descriptor in descriptors:
                os.close(descriptor)
