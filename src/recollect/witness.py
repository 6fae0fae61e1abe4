"""The identity witness: a small file, kept elsewhere, that remembers which store this was.

A wiped volume opens as a cheerful empty store. The witness holds the store's UUID and a high-water mark: the session
and sequence of an acknowledged append. On opening, both are compared with the store: a different UUID means it was
wiped or swapped, a lower sequence that it was rolled back.

The file is written on opening, on closing, and in between at most once a second. In between, the mark is the one from
the previous write, at least a second old: what the engine's own promise allows it to lose raises no alarm, a
rolled-back store does.

Several processes may share the file, and write it one after the other. One that appended nothing has nothing to say on
closing, and none says what is older than what the file has from another (`noted`), which may have erased that very
session. Nor does one that erases, itself, name what it noted before the last erasure (`erased`).
"""

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from recollect import private
from recollect.aside import aside
from recollect.errors import CannotOpen, StoreReplaced, shorten
from recollect.owner import can_end
from recollect.regular_files import read_file
from recollect.store import Options

INTERVAL_S = 1.0
LOCK_MAX_S = 2.0
"""A process that was stopped while it wrote the file does not keep the others from writing."""
LOCK_POLL_S = 0.005

log = logging.getLogger("recollect")


class Mark(msgspec.Struct, frozen=True):
    """An acknowledged append: the session must never again be behind this."""

    session: str
    sequence: int
    noted_ns: int = 0
    """When it was asked for, by the clock: if somebody erases after that, it may be of what was erased."""


class Witness:
    def __init__(self, path: Path, identity: str, mode: int | None) -> None:
        self._path = path
        self._mode = mode
        self._identity = identity
        self._newest: Mark | None = None
        self._aged: Mark | None = None
        self._written_at = 0.0
        self._noted = False
        self._writing: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def check(
        cls, options: Options, identity: str, last_sequence: Callable[[str], Awaitable[int]]
    ) -> "Witness":
        """Compares the store with the file and raises `StoreReplaced` if they differ; then remembers the store."""
        path = options.witness
        assert path is not None
        witness = cls(path, identity, options.file_mode)
        remembered = remembered_by(path)
        if remembered is not None:
            known, mark = remembered
            remedy = f"If that is intended, delete {path} and open again."
            if known != identity:
                raise StoreReplaced(
                    f"this is another store: {path} remembers {known}, this one is {identity}. It was wiped, "
                    f"swapped or restored from nothing. {remedy}"
                )
            if mark is not None:
                found = await last_sequence(mark.session)
                if found < mark.sequence and remembered_by(path) != remembered:
                    return await cls.check(
                        options, identity, last_sequence
                    )  # it was just erased, and is not missed
                if found < mark.sequence:
                    raise StoreReplaced(
                        f"the store was rolled back: session {shorten(mark.session)} had reached sequence "
                        f"{mark.sequence}, now it is at {found}. {remedy}"
                    )
                witness._newest = witness._aged = mark
        try:
            await aside(witness._write_as_it_is)
        except OSError as error:
            raise CannotOpen(
                f"witness {path}: it cannot be written ({error.strerror or error}); name another file"
            ) from error
        return witness

    def note(self, session: str, sequence: int, sent_at: float) -> None:
        """Called with every acknowledged append, and when it was asked for, on any thread; writes the file in the
        background when a second has passed."""
        now = time.monotonic()
        self._newest = Mark(session, sequence, time.time_ns() - round((now - sent_at) * 1e9))
        self._noted = True
        if now - self._written_at < INTERVAL_S or (self._writing is not None and not self._writing.done()):
            return
        if _running_loop() is not self._loop:
            self._loop.call_soon_threadsafe(self.note, session, sequence, sent_at)
            return
        self._written_at = now
        aged, self._aged = self._aged, self._newest
        if aged is not None:
            self._writing = aside(self._write_if_possible, aged)

    async def erase(self, session: str) -> bool:
        """Writes the file without this session; returns whether that was possible.

        To be called before the erasure as well: whoever opens the store meanwhile would miss the session."""
        before_ns, now_ns, written = 0, time.time_ns(), True
        try:
            before_ns, now_ns = await aside(self._write_without, session)
        except OSError:
            written = False
        marks = [_left(mark, session, before_ns) for mark in (self._newest, self._aged)]
        self._newest, self._aged = (
            mark and replace(mark, noted_ns=max(mark.noted_ns, now_ns)) for mark in marks
        )
        return written

    async def close(self) -> None:
        if self._writing is not None and can_end(self._writing):
            await asyncio.wait([self._writing])
        # Otherwise the mark is the one from opening, and another process may have written a newer one.
        if self._noted and self._newest is not None:
            await aside(self._write_if_possible, self._newest)

    def _write_if_possible(self, mark: Mark) -> None:
        """A failure is only logged: an older mark catches less, but raises no false alarm."""
        try:
            with self._alone():
                there = _in(self._path)
                if not mark.noted_ns < there.noted:
                    self._write(mark, mark.noted_ns, there.erased)
        except OSError as error:
            log.warning(
                "the witness %s could not be written (%s); it goes on with what it remembers",
                self._path,
                error,
            )

    def _write_as_it_is(self) -> None:
        with self._alone():
            there = _in(self._path)
            self._write(there.mark, there.noted, there.erased)

    def _write_without(self, session: str) -> tuple[int, int]:
        """When something was erased before this, and when this was."""
        with self._alone():
            there, now_ns = _in(self._path), time.time_ns()
            marks = [_left(mark, session, there.erased) for mark in (self._aged, there.mark)]
            newest = max(filter(None, marks), key=attrgetter("noted_ns"), default=None)
            self._write(newest, now_ns, now_ns)
        return there.erased, now_ns

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other process, or thread, writes a witness in the same folder."""
        try:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:  # one may write in a folder without being able to list it
            yield
            return
        try:
            deadline = time.monotonic() + LOCK_MAX_S
            while not _locked(folder) and time.monotonic() < deadline:
                time.sleep(LOCK_POLL_S)
            yield
        finally:
            with contextlib.suppress(OSError):  # a process that was forked meanwhile has it open, too
                fcntl.flock(folder, fcntl.LOCK_UN)
            os.close(folder)

    def _write(self, mark: Mark | None, noted_ns: int, erased_ns: int) -> None:
        content = {
            "store": self._identity,
            "mark": mark and {"session": mark.session, "sequence": mark.sequence},
            "noted": noted_ns,
            "erased": erased_ns,
        }
        scratch = self._path.with_name(f"{self._path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        with open(scratch, "w", opener=private.opener(self._mode)) as file:
            with contextlib.suppress(FileNotFoundError):
                # Keep the mode of the file it replaces.
                os.fchmod(file.fileno(), stat.S_IMODE(self._path.stat().st_mode))
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self._path)


def _left(mark: Mark | None, session: str, erased_ns: int) -> Mark | None:
    """None if it is this session's, or may be of one that was erased since."""
    return None if mark is None or mark.session == session or mark.noted_ns < erased_ns else mark


def _locked(folder: int) -> bool:
    """True, too, where the file system has no locks."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _There(NamedTuple):
    """What the file says; nothing, if it cannot be read."""

    mark: Mark | None = None
    noted: int = 0
    """When the mark was noted; 0 if the file does not say."""
    erased: int = 0
    """When something was erased last."""


def _in(path: Path) -> _There:
    try:
        content = json.loads(read_file(path))
        _, mark = _read(content)
        noted, erased = (_moment(content.get(name)) for name in ("noted", "erased"))
    except (OSError, *_NO_WITNESS):
        return _There()
    return _There(mark, noted, erased)


def _moment(value: object) -> int:
    """A time to come is of a clock that was set back, and says nothing."""
    return value if isinstance(value, int) and value <= time.time_ns() else 0


_NO_WITNESS = (ValueError, KeyError, TypeError, OverflowError, AttributeError, RecursionError)


def _read(content: Any) -> tuple[str, Mark | None]:
    mark = content["mark"]
    if mark is not None:
        mark = Mark(mark["session"], int(mark["sequence"]), _moment(content.get("noted")))
    return str(content["store"]), mark


def remembered_by(path: Path) -> tuple[str, Mark | None] | None:
    """The store's identity and mark from the file; None if there is no file."""
    try:
        raw = read_file(path)
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise CannotOpen(f"witness: the folder {path.parent} does not exist") from None
        return None
    except OSError as error:
        raise CannotOpen(f"witness {path}: {error.strerror or error}; name another file") from None
    try:
        return _read(json.loads(raw))
    except _NO_WITNESS as error:
        raise CannotOpen(
            f"{path} is not a witness file ({error}): name another, or delete it if it was one"
        ) from error
