"""Files that hold memory are readable by their owner alone, unless somebody widens that.

New files get `FILE_MODE`, new folders the same plus the right to enter; the umask can only take away from that.
Existing files keep their mode. A mode given explicitly (``0o640``) is set exactly; None leaves it to the umask. SQLite
gives its ``-wal``, ``-shm`` and journal the mode of the database, so only the database's has to be right.

The stores take the mode as an option. The commands and the kit take it from `VARIABLE`.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from recollect.errors import Refused, shown

VARIABLE = "RECOLLECT_FILE_MODE"
FILE_MODE = 0o600
UMASK = "umask"
SQLITE_MAGIC = b"SQLite format 3\0"

_creating = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_creating=threading.Lock()))


def checked(mode: int | None) -> int | None:
    if mode is not None and (not isinstance(mode, int) or mode & ~0o666 or mode & 0o600 != 0o600):
        given = oct(mode) if isinstance(mode, int) and abs(mode) < 1 << 32 else shown(mode)
        raise Refused(f"file_mode: such as 0o600, 0o640 or 0o660, or None for the umask; not {given}")
    return mode


def from_environment() -> int | None:
    """`RECOLLECT_FILE_MODE`: ``640``, or ``umask``; private if it is not set."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        return FILE_MODE
    try:
        return None if given == UMASK else checked(int(given, 8))
    except ValueError:
        raise Refused(f"{VARIABLE}: such as 600, 640 or 660, or {UMASK}; not {shown(given)}") from None


def make_folder(path: Path, mode: int | None = FILE_MODE, *, exist_ok: bool = True) -> None:
    """Makes a folder. Missing parents get the umask's mode: they hold nothing of ours."""
    existed = path.is_dir()
    whole = 0o777 if mode is None else mode | (mode & 0o444) >> 2
    path.mkdir(whole, parents=True, exist_ok=exist_ok)
    if not existed and mode not in (None, FILE_MODE):
        path.chmod(whole)  # whatever the umask took away


def make_file(path: Path, mode: int | None = FILE_MODE) -> None:
    """Makes an empty file for somebody else to open, unless it exists.

    One at a time: closing a file drops all locks this process holds on it, so nobody here may open it in between.
    """
    with _creating, contextlib.suppress(FileExistsError):
        os.close(opener(mode)(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))


def opener(mode: int | None = FILE_MODE) -> Callable[[str, int], int]:
    """For `open(…, opener=…)`: a new file gets the mode, an existing one keeps its own."""

    def opened(path: str, flags: int) -> int:
        if mode in (None, FILE_MODE) or not flags & os.O_CREAT:
            return os.open(path, flags, 0o666 if mode is None else FILE_MODE)
        try:
            descriptor = os.open(path, flags | os.O_EXCL, FILE_MODE)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            return os.open(path, flags, FILE_MODE)
        os.fchmod(descriptor, mode)
        return descriptor

    return opened


# ---- what the commands and the kit leave behind


def artifact_folder(path: Path, *, exist_ok: bool = True) -> None:
    make_folder(path, from_environment(), exist_ok=exist_ok)


def artifact(path: Path, how: str = "wb") -> IO[bytes]:
    """Opens a file for writing."""
    return cast(IO[bytes], open(path, how, opener=opener(from_environment())))


def write_artifact(path: Path, content: bytes | str) -> None:
    """Writes the whole file. A database is not overwritten: it is somebody's memory, named by mistake."""
    try:
        _spare_database(path)
        with artifact(path) as file:
            file.write(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def check_artifact(path: Path) -> None:
    """Raises what `write_artifact` would, as far as that is known without touching anything. Parents may be missing."""
    _spare_database(path)
    place = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    if place == path and place.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if place != path and not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if place.exists() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _spare_database(path: Path) -> None:
    if path.is_file() and _is_database(path):
        raise FileExistsError(errno.EEXIST, "It is a database, and is not overwritten", str(path))


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except PermissionError:  # what may be written but not read
        return False
