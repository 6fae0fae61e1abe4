"""The runner's side of the warden: start, signal and kill engine processes that cannot outlive the runner.

One warden per process, started at the first use. A forked child forgets its parent's (`register_at_fork`) and
starts one of its own when it needs engines.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.verify.host.errors import EngineError

_POLL_S = 0.001


@dataclass(frozen=True)
class Identity:
    """The unprivileged user that a server runs as, when it refuses root."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Launch:
    """One process to start: `argv[0]` is a path that is never resolved (Debian's redis-server behaves according to
    its name)."""

    argv: Sequence[str]
    log: Path
    env: Mapping[str, str]
    cwd: Path = Path("/")
    identity: Identity | None = None


class OwnedProcess:
    """One started process, with all its descendants."""

    def __init__(self, warden: _Channel, pid: int) -> None:
        self._warden = warden
        self.pid = pid

    def exit_status(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        status: int | None = self._warden.ask("poll", pid=self.pid)["status"]
        return status

    def alive(self) -> bool:
        return self.exit_status() is None

    def signal(self, number: int, *, tree: bool = False) -> bool:
        """False if it has already ended."""
        delivered: bool = self._warden.ask("signal", pid=self.pid, number=int(number), tree=tree)["delivered"]
        return delivered

    def kill(self) -> None:
        """SIGKILL to it and all its descendants; returns when all are gone and reaped."""
        self._warden.ask("kill", pid=self.pid)

    def note_shared_memory(self, file: Path) -> None:
        """See `folder.note_shared_memory`."""
        self._warden.ask("note", pid=self.pid, file=str(file))

    def pause(self) -> bool:
        return self.signal(signal.SIGSTOP, tree=True)

    def resume(self) -> bool:
        return self.signal(signal.SIGCONT, tree=True)

    def wait(self, timeout_s: float) -> int | None:
        """The exit status, or None when it still runs after `timeout_s`."""
        give_up = time.monotonic() + timeout_s
        while (status := self.exit_status()) is None and time.monotonic() < give_up:
            time.sleep(_POLL_S)
        return status


class _Channel:
    """Request and answer, one line each, over a socket to the warden of this process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # Not the caller's environment: a preloaded shim or a PYTHON* variable is meant for an engine, not
            # for it.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("warden.py")), str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={},
            )
        self._socket = ours
        self._pending = b""
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        with self._lock:
            number = next(self._numbers)
            try:
                request = {"op": operation, "request": number, **arguments}
                self._socket.sendall(json.dumps(request).encode() + b"\n")
                answer = self._line()
                while answer["number"] != number:
                    # The answer to an earlier request that Ctrl-C interrupted.
                    answer = self._line()
            except OSError as error:
                raise EngineError(
                    f"the warden (pid {self.pid}) is gone, and the engines with it: {error}"
                ) from error
        if "error" in answer:
            raise EngineError(f"{operation}: {answer['error']}")
        return answer

    def _line(self) -> dict[str, Any]:
        while b"\n" not in self._pending:
            received = self._socket.recv(1 << 16)
            if not received:
                raise EngineError(
                    f"the warden (pid {self.pid}) ended, and the engines with it; start them again"
                )
            self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Closing the socket makes the warden kill everything and remove the folders; waits for that."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)

    def abandon(self) -> None:
        """In a forked child: the warden is the parent's. Marking it as waited for keeps Popen from warning."""
        self._socket.close()
        self._process.returncode = 0


_channel: _Channel | None = None
_channel_lock = threading.Lock()


def _current() -> _Channel:
    global _channel
    with _channel_lock:
        if _channel is None:
            _channel = _Channel()
            atexit.register(close)
        return _channel


def start(launch: Launch) -> OwnedProcess:
    channel = _current()
    identity = launch.identity
    answer = channel.ask(
        "spawn",
        argv=list(launch.argv),
        env=dict(launch.env),
        cwd=str(launch.cwd),
        log=str(launch.log),
        uid=identity.uid if identity else None,
        gid=identity.gid if identity else None,
    )
    return OwnedProcess(channel, answer["pid"])


def run(launch: Launch, timeout_s: float) -> int:
    """Start, wait for the end, and return the exit status; killed when it takes longer than `timeout_s`."""
    process = start(launch)
    status = process.wait(timeout_s)
    if status is None:
        process.kill()
        raise EngineError(
            f"{Path(launch.argv[0]).name} did not end within {timeout_s:g} s; its output is in {launch.log}"
        )
    return status


def remove_now(folder: Path) -> None:
    """Remove a folder in the background."""
    _current().ask("remove_now", folder=str(folder))


def remove_at_end(folder: Path) -> None:
    """When this process ends, however it ends, the folder is removed."""
    _current().ask("remove_later", folder=str(folder))


def run_at_end(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """When this process has ended, however it ended, run this command last."""
    _current().ask("set_farewell", argv=list(argv), env=dict(env))


def end_strays() -> int:
    """End what processes marked with this run (`folder.marked`) have started and left behind; returns how many."""
    ended: int = _current().ask("end_strays")["ended"]
    return ended


def warden_pid() -> int:
    return _current().pid


def close() -> None:
    """End all engine processes of this process now. The next use starts a new warden."""
    global _channel
    with _channel_lock:
        channel, _channel = _channel, None
    if channel is not None:
        channel.close()


def _forget_in_child() -> None:
    global _channel, _channel_lock
    _channel_lock = threading.Lock()
    if _channel is not None:
        _channel.abandon()
        _channel = None


os.register_at_fork(after_in_child=_forget_in_child)
