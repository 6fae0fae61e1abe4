"""The identity witness: a small file, kept elsewhere, that remembers which store this was.

A wiped volume opens as a cheerful empty store. The witness holds the store's UUID and a high-water mark: the session
and sequence of an acknowledged append. On opening, both are compared with the store: a different UUID means it was
wiped or swapped, a lower sequence that it was rolled back.

The file is written on opening, on closing, and in between at most once a second. In between, the mark is the one from
the previous write, at least a second old: what the engine's own promise allows it to lose raises no alarm, a
rolled-back store does. Several processes may share the file: one that appended nothing has nothing to say on closing,
and none says what is older than what the file has from another (`noted`), which may have erased that very session.
"""

import asyncio
import contextlib
import json
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from recollect import private
from recollect.errors import CannotOpen, StoreReplaced, shorten
from recollect.owner import can_end
from recollect.regular_files import read_file
from recollect.store import Options

INTERVAL_S = 1.0

log = logging.getLogger("recollect")


class Mark(msgspec.Struct, frozen=True):
    """An acknowledged append: the session must never again be behind this."""

    session: str
    sequence: int
    noted_ns: int = 0
    """When, by the clock."""


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
                if found < mark.sequence:
                    raise StoreReplaced(
                        f"the store was rolled back: session {shorten(mark.session)} had reached sequence "
                        f"{mark.sequence}, now it is at {found}. {remedy}"
                    )
                witness._newest = witness._aged = mark
        await asyncio.to_thread(witness._write, witness._newest, _noted_in(path))
        return witness

    def note(self, session: str, sequence: int) -> None:
        """Called with every acknowledged append, on any thread; writes the file in the background when a second has
        passed."""
        self._newest = Mark(session, sequence, time.time_ns())
        self._noted = True
        now = time.monotonic()
        if now - self._written_at < INTERVAL_S or (self._writing is not None and not self._writing.done()):
            return
        if _running_loop() is not self._loop:
            self._loop.call_soon_threadsafe(self.note, session, sequence)
            return
        self._written_at = now
        aged, self._aged = self._aged, self._newest
        if aged is not None:
            self._writing = asyncio.get_running_loop().run_in_executor(None, self._write_if_possible, aged)

    async def erase(self, session: str) -> bool:
        """Writes the file without this session; returns whether that was possible."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        now_ns = time.time_ns()
        self._newest, self._aged = (
            None if mark is None or mark.session == session else replace(mark, noted_ns=now_ns)
            for mark in (self._newest, self._aged)
        )
        try:
            await asyncio.to_thread(self._write, self._aged, now_ns)
        except OSError:
            return False
        return True

    async def close(self) -> None:
        if self._writing is not None and can_end(self._writing):
            await asyncio.wait([self._writing])
        # Otherwise the mark is the one from opening, and another process may have written a newer one.
        if self._noted and self._newest is not None:
            await asyncio.to_thread(self._write_if_possible, self._newest)

    def _write_if_possible(self, mark: Mark) -> None:
        """A failure is only logged: an older mark catches less, but raises no false alarm."""
        try:
            # A time to come is of a clock set back.
            if not mark.noted_ns < _noted_in(self._path) <= time.time_ns():
                self._write(mark, mark.noted_ns)
        except OSError as error:
            log.warning(
                "the witness %s could not be written (%s); it goes on with what it remembers",
                self._path,
                error,
            )

    def _write(self, mark: Mark | None, noted_ns: int) -> None:
        content = {
            "store": self._identity,
            "mark": mark and {"session": mark.session, "sequence": mark.sequence},
            "noted": noted_ns,
        }
        scratch = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        with open(scratch, "w", opener=private.opener(self._mode)) as file:
            with contextlib.suppress(FileNotFoundError):
                # Keep the mode of the file it replaces.
                os.fchmod(file.fileno(), stat.S_IMODE(self._path.stat().st_mode))
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self._path)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _noted_in(path: Path) -> int:
    """When what the file says was noted; 0 if it does not say, as one of an older release."""
    try:
        noted = json.loads(read_file(path))["noted"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0
    return noted if isinstance(noted, int) else 0


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
        content = json.loads(raw)
        mark = content["mark"]
        return str(content["store"]), None if mark is None else Mark(mark["session"], int(mark["sequence"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CannotOpen(
            f"{path} is not a witness file ({error}): name another, or delete it if it was one"
        ) from error
