"""The folder that a run keeps its histories in, and how two runs stay out of each other's folders.

Without a name from the user the folder is always new: when two runs start in the same second with the same seed, the
second gets another name. A folder that the user names may be left from an earlier run and is used again, but never by
two runs at once. While a run writes to a folder, each of its processes holds a lock on a file in it. The kernel drops
the lock when the process ends, however it ends; the file says which run holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from recollect import private

_LOCK_FILE = ".in-use"
_TRIES_MAX = 1_000
_SETTLING_S = 5.0
_POLL_S = 0.005
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""Errors from file systems without locks: two runs in one folder go unnoticed there."""
_SESSION_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{16}-seed-?\d+")


class FolderInUse(Exception):
    """Another run is writing there."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is in use by another run: wait until it ends, or choose another folder")


def new(parent: Path, name: str) -> Path:
    """Makes `parent/name`, or `parent/name-2` and so on if that exists. Hold it with `in_use`."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, _TRIES_MAX):
        path = parent / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            private.artifact_folder(path, exist_ok=False)
            return path
    raise FileExistsError(f"{parent} has {_TRIES_MAX - 1} folders called {name}; remove some")


@contextlib.contextmanager
def in_use(path: Path) -> Iterator[None]:
    """Keeps other runs out of the folder; raises `FolderInUse` if one is already writing there."""
    descriptor = join(path, secrets.token_hex(8))
    try:
        yield
    finally:
        os.close(descriptor)


def remove_if_unused(path: Path) -> None:
    """Removes the folder of a run that was interrupted before it wrote anything, and its parent if that is empty."""
    if path.is_dir() and all(entry.name == _LOCK_FILE for entry in path.iterdir()):
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # other runs are in it
            path.parent.rmdir()


def join(path: Path, run: str) -> int:
    """Locks the folder: while the returned descriptor is open, only processes that name the same `run` can join."""
    private.artifact_folder(path)
    descriptor = private.opener(private.from_environment())(str(path / _LOCK_FILE), os.O_RDWR | os.O_CREAT)
    try:
        if _locked(descriptor, fcntl.LOCK_EX):  # nobody else is here
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, run.encode(), 0)
        _share(descriptor, path)
        # Between the two locks another run may have come in and written its own name.
        if _said(descriptor) != run:
            raise FolderInUse(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _share(descriptor: int, path: Path) -> None:
    """Waits for a shared lock: whoever holds an exclusive one is about to share it."""
    deadline = time.monotonic() + _SETTLING_S
    while not _locked(descriptor, fcntl.LOCK_SH):
        if time.monotonic() > deadline:
            raise FolderInUse(path)
        time.sleep(_POLL_S)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _said(descriptor: int) -> str:
    return os.pread(descriptor, 256, 0).decode(errors="replace")


# ---- pytest sessions


def session_name(seed: int) -> str:
    """Names a folder that no other session has; its processes `join` it under the same name."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(8)}-seed{seed}"


def forget_old_sessions(parent: Path, kept: int) -> None:
    """Removes all but the newest. Only folders whose lock file names them as a session, and that nobody is using."""
    if parent.is_dir():
        for path in sorted(path for path in parent.iterdir() if _SESSION_NAME.fullmatch(path.name))[:-kept]:
            _forget(path)


def _forget(path: Path) -> None:
    try:
        descriptor = os.open(path / _LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if _said(descriptor) == path.name and not path.is_symlink() and _locked(descriptor, fcntl.LOCK_EX):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
