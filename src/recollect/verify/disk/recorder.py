"""Recording what an engine does to its folder, and breaking single calls while it does.

    recorder = Recorder(folder)                       # the engine is stopped; the folder is read as the base
    engine.start(env={**os.environ, **recorder.env()})
    ... recorder.mark("ack 17") after each acknowledgement the runner received ...
    engine.kill()
    Model(recorder.base).replay(recorder.read()).durable()

Marks go into the same log as the engine's calls, so "acknowledged, then not yet synced" is a fact and not a
guess from two clocks. Faults act through the log's header on all processes of the engine at once, and can
be changed at any time.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from recollect.verify.disk.building import ShimUnavailableError, shim_path
from recollect.verify.disk.image import Base, scan
from recollect.verify.disk.records import HEADER_BYTES, Header, Op, Record, read_records
from recollect.verify.host import folder
from recollect.verify.host.native import for_every_user

CAPACITY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Aim:
    """A moment that only the engine's own process can see: in the middle of rewriting one of its files."""

    file: Path
    writes: int
    """After this many writes to it, counted from now, the aim is reached."""
    then: Literal["kill", "full"]
    """SIGKILL for the whole process tree, or a disk without any space left."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What the shim does to the engine's calls from now on.

    kill_at: SIGKILL for the whole process tree as soon as that many calls are recorded (see
    `Recorder.count`).
    torn_percent: of the write that becomes record `kill_at`, only this much is done.
    sync_delay_s: every fsync, and every call like it, takes this much longer.
    sync_errno, sync_error_after: after that many more syncs, all fail like this and write nothing.
    space_left_bytes: files may grow by this much in total, then ENOSPC; None is no limit.
    aim: a kill or a full disk, at a moment in the life of one file.
    """

    kill_at: int | None = None
    torn_percent: int | None = None
    sync_delay_s: float = 0.0
    sync_errno: int = 0
    sync_error_after: int = 0
    space_left_bytes: int | None = None
    aim: Aim | None = None

    @classmethod
    def fsync_error(cls, after: int = 0) -> Faults:
        return cls(sync_errno=errno.EIO, sync_error_after=after)


@contextmanager
def dormant_shim() -> Iterator[None]:
    """Processes started in this block load the shim asleep, and can `attach`. Does nothing if there is no shim."""
    before = os.environ.get("LD_PRELOAD")
    try:
        os.environ["LD_PRELOAD"] = f"{for_every_user(shim_path())} {before or ''}".strip()
    except ShimUnavailableError:
        yield
        return
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"]
        if before is not None:
            os.environ["LD_PRELOAD"] = before


def attach(env: Mapping[str, str]) -> bool:
    """Record this process and its children from now on; False if it was not started with the shim. `env` is what
    `Recorder.env` returned."""
    try:
        join = ctypes.CDLL(None).recollect_attach
    except AttributeError:
        return False
    os.environ.update(env)
    join.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    return bool(join(os.fsencode(env["RECOLLECT_DISK_LOG"]), os.fsencode(env["RECOLLECT_DISK_ROOT"])) == 0)


@dataclass(frozen=True, slots=True)
class InFlight:
    """A call that had begun, and whose record is missing, when its process was killed. `ino` 0: a change of
    names."""

    op: Op
    ino: int


class Recorder:
    """One recording of one folder. Use as a context manager, or `close`: the log takes memory until then."""

    def __init__(
        self,
        root: Path,
        *,
        base: Base | None = None,
        capacity_bytes: int = CAPACITY_BYTES,
        skip_sync: bool = False,
    ) -> None:
        self._shim = for_every_user(shim_path())
        self.root = root.resolve()
        self.base = scan(self.root) if base is None else base
        self._library = ctypes.CDLL(str(self._shim))
        self._library.recollect_mark.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self._library.recollect_mark.restype = None
        self._folder = folder.in_memory(capacity_bytes)
        self._log_path = self._folder / f"log-{secrets.token_hex(8)}"
        with self._log_path.open("wb") as file:
            file.truncate(capacity_bytes)
        self._log_path.chmod(0o666)
        with self._log_path.open("r+b") as file:
            self._log = mmap.mmap(file.fileno(), capacity_bytes)
        self._header = Header.from_buffer(self._log)
        self._header.magic = secrets.randbits(63) | 1
        self._header.capacity = capacity_bytes
        self._header.skip_sync = int(skip_sync)
        self.faults(Faults())
        self._header.tail = HEADER_BYTES

    def begin_again(self, base: Base) -> None:
        """Forget the recording and begin one of another base, for processes that have loaded the shim already. None of
        them may be at work. A new magic number keeps what is left of the old records from being read."""
        self.base = base
        header = self._header
        header.magic = secrets.randbits(63) | 1
        header.count = header.io_uring = header.process_count = 0
        for array in (header.flights, header.unseen, header.processes, header.changes):
            ctypes.memset(array, 0, ctypes.sizeof(array))
        header.tail = HEADER_BYTES

    def env(self) -> dict[str, str]:
        """What the engine's environment needs; an existing LD_PRELOAD is kept, after ours."""
        others = os.environ.get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": f"{self._shim} {others}".strip(),
            "RECOLLECT_DISK_LOG": str(self._log_path),
            "RECOLLECT_DISK_ROOT": str(self.root),
        }

    def mark(self, text: str) -> None:
        """Put a note between the engine's calls, such as an acknowledgement."""
        self._library.recollect_mark(ctypes.addressof(self._header), os.fsencode(text[:60_000]))

    def faults(self, faults: Faults) -> None:
        """Inject from now on; `Faults()` heals."""
        header = self._header
        header.torn_percent = -1 if faults.torn_percent is None else faults.torn_percent
        header.sync_delay_us = round(faults.sync_delay_s * 1e6)
        header.sync_error_after = faults.sync_error_after
        header.sync_errno = faults.sync_errno
        header.space_left = -1 if faults.space_left_bytes is None else faults.space_left_bytes
        header.kill_at = faults.kill_at or 0
        header.aim_ino = 0
        if faults.aim is not None:
            header.aim_writes, header.aim_full = faults.aim.writes, int(faults.aim.then == "full")
            header.aim_ino = faults.aim.file.stat().st_ino

    def read(self) -> Iterator[Record]:
        """The records so far, in order."""
        return read_records(self._log, self._header)

    def log_bytes(self) -> bytes:
        """The log as it is, header first, to be read elsewhere."""
        return self._log[: min(self._header.tail, self._header.capacity)]

    @property
    def count(self) -> int:
        """How many calls of the engine are recorded; marks do not count."""
        return self._header.count

    @property
    def halted(self) -> bool:
        """`kill_at` was reached."""
        return bool(self._header.halted)

    @property
    def aiming(self) -> bool:
        """An aim was set, and its moment has not come yet."""
        return bool(self._header.aim_ino)

    @property
    def space_left_bytes(self) -> int | None:
        left = self._header.space_left
        return None if left < 0 else left

    @property
    def io_uring(self) -> bool:
        """The engine uses io_uring, whose writes cannot be seen."""
        return bool(self._header.io_uring)

    def pids(self) -> set[int]:
        """Processes that ever loaded the shim for this recording; some may be gone."""
        used = min(self._header.process_count, len(self._header.processes))
        return {self._header.processes[i].pid for i in range(used)} - {0}

    def unseen(self) -> set[int]:
        """Inodes written by streams or mappings: between syncs their content is unknown to the log."""
        return {ino for ino in self._header.unseen if ino > 1}

    def in_flight(self) -> list[InFlight]:
        """Calls whose process died between doing and recording them."""
        return [InFlight(Op(flight.op), flight.ino) for flight in self._header.flights if flight.op]

    def close(self) -> None:
        if hasattr(self, "_header"):
            del self._header
            self._log.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
