"""Servers that are stopped just before they would read their data, and copied from there: `prestart.c`.

A template is one process of the real server, stopped before its first thread. Each copy of it does the rest of the
start with the server's own code. Only one copy lives at a time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import socket
import struct
from pathlib import Path

from recollect.verify.host.errors import EngineError
from recollect.verify.host.native import Native, NativeUnavailableError, for_every_user

_HERE = Path(__file__).parent
_LIBRARY = Native(
    "prestart", "the prestarted server", _HERE, _HERE / "prestart.so", "recollect_prestart_layout", 1
)
_NUMBER = struct.Struct("=i")
_END_TIMEOUT_S = 10.0


@functools.cache
def library() -> Path:
    """The preloadable library, compiled now if need be, or `NativeUnavailableError`."""
    return _LIBRARY.path()


def unavailable() -> str | None:
    """Why no server can be prestarted here; None if one can."""
    try:
        library()
    except NativeUnavailableError as error:
        return str(error)
    return None


class Template:
    """The end of the control socket that asks for copies. Made before the server is launched, with `env` in its
    environment; `connected` is true as soon as the server has stopped there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen(1)
        self._control: socket.socket | None = None

    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(for_every_user(library())), "RECOLLECT_PRESTART": str(self._path)}

    def connected(self, timeout_s: float) -> bool:
        """Whether the server has stopped and waits for orders; waits at most this long for that."""
        if self._control is None and select.select([self._listening], [], [], timeout_s)[0]:
            self._control = self._listening.accept()[0]
            self._control.settimeout(_END_TIMEOUT_S)
        return self._control is not None

    def copy(self) -> Copy:
        """Start a copy. The previous one must have ended."""
        assert self._control is not None, "connected() first"
        try:
            self._control.sendall(b"\n")
            pid = _number(self._control)
        except OSError as error:
            raise EngineError(f"the prestarted server is gone: {error}") from error
        if pid < 0:
            raise EngineError("the prestarted server cannot fork: no memory, or too many processes")
        return Copy(pid, self._control)

    def close(self) -> None:
        """The server ends when its control socket closes."""
        self._listening.close()
        if self._control is not None:
            self._control.close()
        self._path.unlink(missing_ok=True)


class Copy:
    """One started copy of a template, until it has ended and was reaped."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self._control = control
        self._status: int | None = None

    def fileno(self) -> int:
        """Readable when it has ended."""
        return self._control.fileno()

    def exit_status(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        if self._status is None and select.select([self._control], [], [], 0)[0]:
            self._status = os.waitstatus_to_exitcode(_number(self._control))
        return self._status

    def kill(self) -> None:
        """SIGKILL to it and to what it forked; returns when it is gone and reaped."""
        if self.exit_status() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._status = os.waitstatus_to_exitcode(_number(self._control))


def _number(control: socket.socket) -> int:
    data = b""
    while len(data) < _NUMBER.size:
        piece = control.recv(_NUMBER.size - len(data))
        if not piece:
            raise ConnectionResetError("the prestarted server closed its control socket")
        data += piece
    number: int = _NUMBER.unpack(data)[0]
    return number
