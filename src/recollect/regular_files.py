"""Files whose names a user gave. A named pipe or a device is refused: reading one could wait, or go on, for ever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def descriptor_of(path: Path) -> int:
    """Raises OSError as `open` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe opens at once
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "Not a regular file", str(path))


def open_file(path: Path) -> BinaryIO:
    return os.fdopen(descriptor_of(path), "rb")


def read_file(path: Path) -> bytes:
    with open_file(path) as file:
        return file.read()
