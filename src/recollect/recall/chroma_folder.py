"""The folder of an embedded Chroma index: whose it is, and whether its files can be trusted.

    index/
      slot-0/                 one process at a time, held by a lock that the kernel drops when the process ends
        lock
        00000003-9f1c…/       a generation: Chroma's folder, never used again once it is in doubt
          state.json          ours: whether a flush is running, and how the vector files looked after the last one

Chroma rewrites its vector files in place once enough changes have accumulated, without fsync. So before a call that may
do that, "flushing" is written to the state, durably; after it, the files are fsynced and their sizes and times noted.
A process that dies in between leaves "flushing" behind; a power loss, or anybody who touches the files, leaves other
sizes or times. Either way the generation is not trusted, not even loaded, and the index is rebuilt from the rows.

The state also holds the generation's own random name. A folder without such a state is not ours, whatever it is called,
and is neither read nor deleted.
"""

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recollect import private
from recollect.recall.index import IndexBroken

SLOTS_MAX = 64
_STATE = "state.json"
_DATABASE = "chroma.sqlite3"
_NAME = re.compile(r"\d{8}-[0-9a-f]{8}")


class Slot:
    """A folder for one process's index."""

    def __init__(self, path: Path, descriptor: int, mode: int | None) -> None:
        self.path = path
        self._descriptor = descriptor
        self._mode = mode

    @classmethod
    def take(cls, folder: Path, mode: int | None = private.FILE_MODE) -> "Slot":
        private.make_folder(folder, mode)
        for number in range(SLOTS_MAX):
            path = folder / f"slot-{number}"
            private.make_folder(path, mode)
            descriptor = private.opener(mode)(str(path / "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                continue
            return cls(path, descriptor, mode)
        raise IndexBroken(
            f"{folder}: all {SLOTS_MAX} slots are in use; more processes than that need a server"
        )

    def newest(self) -> "Generation | None":
        found = self._generations()
        return Generation(found[-1]) if found else None

    def fresh(self) -> "Generation":
        found = self._generations()
        number = int(found[-1].name.split("-")[0]) + 1 if found else 1
        path = self.path / f"{number:08d}-{uuid.uuid4().hex[:8]}"
        private.make_folder(path, self._mode)
        made = Generation(path)
        made.claim()
        return made

    def discard_others(self, kept: "Generation") -> None:
        for path in self._generations():
            if path != kept.path:
                Generation(path).discard()

    def left_beside(self, kept: "Generation") -> list[Path]:
        """Folders of earlier generations that could not be fully deleted; one without our state is not touched."""
        self.discard_others(kept)
        return [path for path in self.path.iterdir() if _NAME.fullmatch(path.name) and path != kept.path]

    def empty_others(self) -> list[Path]:
        """Deletes the generations of all other slots; returns the slots that another process holds."""
        busy: list[Path] = []
        for path in sorted(self.path.parent.glob("slot-*")):
            if path == self.path or path.is_symlink() or not (path / "lock").is_file():
                continue
            descriptor = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for generation in Slot(path, descriptor, self._mode)._generations():
                    Generation(generation).discard()
            except BlockingIOError:
                busy.append(path)
            finally:
                os.close(descriptor)
        return busy

    def release(self) -> None:
        os.close(self._descriptor)

    def _generations(self) -> list[Path]:
        if not self.path.is_dir():
            return []
        return sorted(
            path
            for path in self.path.iterdir()
            if _NAME.fullmatch(path.name) and not path.is_symlink() and Generation(path).ours()
        )


class Generation:
    """One folder that Chroma writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._since_flush: int | None = None
        """Changes since the last flush; None if that is not known."""

    def present(self) -> bool:
        return (self.path / _STATE).exists() and (self.path / _DATABASE).exists()

    def claim(self) -> None:
        """Makes it ours, but not trusted yet."""
        self._write_state(flushing=True)

    def ours(self) -> bool:
        return self._state().get("generation") == self.path.name

    def trusted(self) -> bool:
        state = self._state()
        return state.get("flushing") is False and state.get("files") == self._files()

    def _state(self) -> dict[str, Any]:
        try:
            state = json.loads((self.path / _STATE).read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return state if isinstance(state, dict) else {}

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def begin(self) -> None:
        """Marks the generation as trusted: it is consistent from here on."""
        self._since_flush = 1
        self._settle()

    @contextmanager
    def changing(self, size: int, threshold: int) -> Iterator[None]:
        """Wraps a call with this many changes, so that a flush cut short inside it is recognised later."""
        before = self._files()
        flush = self._since_flush is None or self._since_flush + size >= threshold or not before
        if flush:
            self._write_state(flushing=True)
        yield
        files = self._files()
        if files != before:
            # Seen with Chroma 1.5.9: a flush takes everything up to the call that crosses the threshold.
            self._since_flush = 0
            self._settle()
            return
        if self._since_flush is not None:
            self._since_flush += size
        if flush:
            self._write_state(flushing=False)

    def _settle(self) -> None:
        """Fsyncs what Chroma wrote and did not."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                # Closing those would drop SQLite's locks.
                if name != _STATE and not name.startswith(_DATABASE):
                    _sync(Path(folder, name))
            _sync(Path(folder))
        self._write_state(flushing=False)

    def _files(self) -> dict[str, list[int]]:
        """Size and time of the vector files."""
        found: dict[str, list[int]] = {}
        for folder in (path for path in self.path.iterdir() if path.is_dir()):
            for path in folder.iterdir():
                status = path.stat()
                found[f"{folder.name}/{path.name}"] = [status.st_size, status.st_mtime_ns]
        return dict(sorted(found.items()))

    def _write_state(self, *, flushing: bool) -> None:
        scratch = self.path / f"{_STATE}.new"
        with scratch.open("w") as file:
            json.dump({"generation": self.path.name, "flushing": flushing, "files": self._files()}, file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self.path / _STATE)
        _sync(self.path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
