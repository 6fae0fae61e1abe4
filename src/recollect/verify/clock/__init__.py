"""A wall clock that can be moved and stopped under a running program: `clock.c`, preloaded, and its control file.

An engine gets it through its environment (`Clock.env`). A target's worker is forked from a server into which the
library was preloaded without a control file, and is told which file to obey (`obey`): so each run has a clock of its
own, while all runs share the warm server.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import secrets
import time
from pathlib import Path

from recollect.verify.host import folder
from recollect.verify.host.native import Native, NativeUnavailableError, for_every_user

_HERE = Path(__file__).parent
_LIBRARY = Native("clock", "the movable clock", _HERE, _HERE / "clock.so", "recollect_clock_layout", 1)
_CONTROL_VARIABLE = "RECOLLECT_CLOCK"
_SECOND_NS = 1_000_000_000


class _Control(ctypes.Structure):
    """As in clock.c. Each field is written by one aligned store, so no reader sees half of it."""

    _fields_ = (("offset_ns", ctypes.c_int64), ("frozen_ns", ctypes.c_int64))


@functools.cache
def library() -> Path:
    """The preloadable clock, compiled now if need be, or `NativeUnavailableError`."""
    return _LIBRARY.path()


@functools.cache
def unavailable() -> str | None:
    """Why no clock can be moved here; None if one can."""
    try:
        library()
    except NativeUnavailableError as error:
        return str(error)
    return None


def preloading(others: str = "") -> dict[str, str]:
    """What a program's environment needs for its clock to be movable, added to what it already preloads."""
    return {"LD_PRELOAD": f"{for_every_user(library())} {others}".strip()}


def obey(control: str) -> None:
    """From now on this process, into which the library was preloaded, and its children obey this control file."""
    os.environ[_CONTROL_VARIABLE] = control
    try:
        use = ctypes.CDLL(None, use_errno=True).recollect_clock_use
    except AttributeError:
        raise RuntimeError(
            "the movable clock is not loaded into this process: its fork server was started by something else"
            " before recollect could preload it"
        ) from None
    if use(os.fsencode(control)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the clock's control file cannot be used: {os.strerror(number)}", control)


class Clock:
    """One clock that some processes share. It shows the real time until it is moved."""

    def __init__(self) -> None:
        self.control = folder.current() / f"clock-{secrets.token_hex(6)}"
        self.control.write_bytes(bytes(ctypes.sizeof(_Control)))
        self.control.chmod(0o644)  # an engine may run as another user, and only reads it
        with self.control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), ctypes.sizeof(_Control))
        self._shared = _Control.from_buffer(self._memory)

    def env(self, others: str = "") -> dict[str, str]:
        """For an engine's environment; `others` is what it already preloads."""
        return {**preloading(others), _CONTROL_VARIABLE: str(self.control)}

    @property
    def offset_s(self) -> float:
        """How far it is from real time now."""
        frozen_ns: int = self._shared.frozen_ns
        offset_ns: int = frozen_ns - time.time_ns() if frozen_ns else self._shared.offset_ns
        return offset_ns / _SECOND_NS

    @property
    def frozen(self) -> bool:
        return bool(self._shared.frozen_ns)

    def move(self, offset_s: float) -> None:
        self._shared.offset_ns = round(offset_s * _SECOND_NS)

    def freeze(self) -> None:
        self._shared.frozen_ns = time.time_ns() + self._shared.offset_ns

    def heal(self) -> None:
        self._shared.frozen_ns = 0
        self._shared.offset_ns = 0

    def close(self) -> None:
        del self._shared
        self._memory.close()
        self.control.unlink(missing_ok=True)
