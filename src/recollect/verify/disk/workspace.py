"""A folder that becomes one image after another.

Crash states differ in a page, and recovery touches a few more files. So the workspace remembers what it wrote
where, checks what has changed since (size, time of change, inode), and rewrites only that: a PostgreSQL folder
of a thousand files turns into the next state by rewriting three.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from recollect.verify.disk.image import Content, Directory, Image, ImageEntry, TooLargeError, write_entry

_Stamp = tuple[int, int, int]


class Workspace:
    """One folder, used by one worker. In memory (`/dev/shm`) it is fast; what it may hold is capped."""

    def __init__(
        self, folder: Path, *, limit_bytes: int = 1 << 30, owner: tuple[int, int] | None = None
    ) -> None:
        self.folder = folder
        self._limit_bytes = limit_bytes
        self._owner = owner
        self._written: dict[str, tuple[ImageEntry, _Stamp]] = {}

    def become(self, image: Image) -> int:
        """Make the folder equal to the image; returns the number of entries that had to be written. Nothing may be
        using the folder."""
        wanted = sum(entry.stored_bytes for entry in image.entries.values() if isinstance(entry, Content))
        if wanted > self._limit_bytes:
            raise TooLargeError(f"the image holds {wanted} bytes, the limit is {self._limit_bytes}")
        if not self.folder.exists():
            self.folder.mkdir(parents=True, mode=0o700)
            if self._owner:
                os.chown(self.folder, *self._owner)
        kept = self._remove_strangers(image)
        missing = sorted(image.entries.keys() - kept)
        top = str(self.folder)
        for path in missing:
            entry = image.entries[path]
            status = write_entry(f"{top}/{path}", entry, self._owner, forget_time=True)
            self._written[path] = (entry, _stamp(status, entry))
        return len(missing)

    def _remove_strangers(self, image: Image) -> set[str]:
        """Delete what is not in the image; returns the paths that may stay as they are."""
        kept: set[str] = set()
        waiting = [""]
        top = str(self.folder)
        while waiting:
            below = waiting.pop()
            with os.scandir(f"{top}/{below}") as found:
                items = list(found)
            for item in items:
                path = f"{below}/{item.name}" if below else item.name
                if self._is_as_written(path, item, image.entries.get(path)):
                    kept.add(path)
                    if item.is_dir(follow_symlinks=False):
                        waiting.append(path)
                elif item.is_dir(follow_symlinks=False):
                    shutil.rmtree(item.path)
                else:
                    Path(item.path).unlink()
        for path in self._written.keys() - kept:
            del self._written[path]
        return kept

    def _is_as_written(self, path: str, item: os.DirEntry[str], wanted: ImageEntry | None) -> bool:
        written = self._written.get(path)
        if wanted is None or written is None or (written[0] is not wanted and written[0] != wanted):
            return False
        return _stamp(item.stat(follow_symlinks=False), wanted) == written[1]


def _stamp(status: os.stat_result, entry: ImageEntry) -> _Stamp:
    """Changes when the entry does. For a directory only its identity counts: its entries are checked
    themselves."""
    if isinstance(entry, Directory):
        return (status.st_ino, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)
