"""A server that runs as a process on this machine: the life cycle that Redis, PostgreSQL and Chroma share.

An engine says what to launch, how to tell that it is ready, and where it answers; this class does the rest.

    engine folder/
      data/      the engine's own; kept across stop, kill and restart
      log        what the server printed, across all starts
      …          its unix socket, its generated configuration
"""

from __future__ import annotations

import os
import re
import signal
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Protocol

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.life import BuiltEngine
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.policy_choice import choose, named
from recollect.verify.engines.protocols import Policy
from recollect.verify.host import folder, processes
from recollect.verify.host.errors import EngineError, StartFailed
from recollect.verify.host.ports import Reservation
from recollect.verify.host.processes import Launch, OwnedProcess
from recollect.verify.providers.build import Build

_POLL_S = 0.001
_LOG_TAIL_BYTES = 64 * 1024

ADVICE = {
    r"No space left on device": "the disk is full: free some space, or set TMPDIR to another disk",
    r"Address already in use": "its port is in use: leave the port out to get a free one",
    r"Permission denied|Operation not permitted": "it may not write to its folder: choose another",
    r"Bad file format|Unexpected end of file|truncated": "its own data is damaged: the log says which file",
    r"Bad directive|FATAL CONFIG|unrecognized configuration parameter|invalid value for parameter": (
        "its configuration has a setting that this version does not know: the line is in the log"
    ),
}
"""What the last lines of the engine's log mean, and what to do next. The first match counts."""


class AttachedReplica(Protocol):
    """What a primary needs from its replica."""

    @property
    def endpoint(self) -> Endpoint: ...

    def close(self) -> None: ...


class LocalServer(BuiltEngine):
    """One server process and its folder. Subclasses fill in the hooks at the end of the class."""

    name: ClassVar[str]
    policies: ClassVar[Mapping[str, Policy]]
    default_policy: ClassVar[str]
    listens: ClassVar[bool] = True
    """Whether it has a TCP port."""
    stop_signal: ClassVar[int] = signal.SIGTERM

    def __init__(self, build: Build, options: EngineOptions) -> None:
        self.build = build
        self.options = options
        self._policy = choose(self.name, self.policies, self.default_policy, options)
        self.folder = folder.subfolder(self.name, options.root)
        self._data = options.data or self.folder / "data"
        self.log = self.folder / "log"
        self._reservation = Reservation(options.port) if self.listens else None
        self._process: OwnedProcess | None = None
        self._paused = False
        self._log_start = 0
        self._replicas: list[AttachedReplica] = []

    # What it is -----------------------------------------------------------------------------------

    @property
    def data(self) -> Path:
        return self._data

    @property
    def port(self) -> int:
        if self._reservation is None:
            raise EngineError(f"{self.name} has no port: it is embedded; use its path")
        return self._reservation.port

    @property
    def replica_urls(self) -> tuple[str, ...]:
        return tuple(replica.endpoint.url for replica in self._replicas)

    def _attach(self, replica: AttachedReplica) -> None:
        self._replicas.append(replica)
        self._endpoint = replace(self.endpoint, replicas=self.replica_urls)

    # Life cycle -----------------------------------------------------------------------------------

    def _bring_up(self, env: Mapping[str, str]) -> None:
        self.kill()  # whatever a server that died by itself has left
        try:
            self._prepare()
            self._log_start = self.log.stat().st_size if self.log.exists() else 0
            self._process = processes.start(self._launch({**_plain_environment(), **self.options.env, **env}))
        except OSError as error:
            raise self._unwritable(error) from error
        self._paused = False

    def stop(self) -> None:
        process = self._process
        if process is None:
            return
        if self._paused:
            self.resume()
        if process.signal(self.stop_signal) and process.wait(self.options.stop_timeout_s) is None:
            process.kill()
            raise EngineError(
                f"{self.name} did not stop within {self.options.stop_timeout_s:g} s"
                f" of signal {self.stop_signal} and was killed; its log ends:\n{self.logs(5)}"
            )
        process.kill()  # children that outlive a graceful stop by a moment
        self._process = None

    def kill(self) -> None:
        process, self._process = self._process, None
        self._paused = False
        if process is not None:
            process.kill()

    def _wipe_data(self) -> None:
        folder.discard(self._data)

    def close(self) -> None:
        for replica in self._replicas:
            replica.close()
        self.kill()
        if self._reservation is not None:
            self._reservation.close()
        folder.discard(self.folder)

    def alive(self) -> bool:
        return self._process is not None and self._process.alive()

    def pause(self) -> None:
        if not self._running().pause():
            raise EngineError(f"{self.name} ended on its own; its log ends:\n{self.logs(5)}")
        self._paused = True

    def resume(self) -> None:
        self._running().resume()
        self._paused = False

    def reconfigure(self, policy: str) -> Endpoint:
        chosen = named(self.name, self.policies, policy)
        self.stop()
        self._policy = chosen
        return self.start()

    def _start_under(self, build: Build) -> Endpoint:
        """The same data under another build; if it refuses, the former build is restored."""
        self.stop()
        former, self.build = self.build, build
        try:
            return self.start()
        except EngineError:
            self.build = former
            raise

    def logs(self, lines_max: int = 40) -> str:
        """The last lines that it has printed since its last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(self._log_start, self.log.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join([line for line in lines if line.strip()][-lines_max:])

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_paused(self) -> bool:
        return self._paused

    def _running(self) -> OwnedProcess:
        if self._process is None:
            raise EngineError(f"{self.name} is not running; start() it first")
        return self._process

    # Readiness ------------------------------------------------------------------------------------

    def _endpoint_when_ready(self) -> Endpoint:
        process = self._running()
        give_up = time.monotonic() + self.options.start_timeout_s
        while not self._ready():
            if not process.alive():
                raise self._start_failed(f"ended with status {process.exit_status()} before it was ready")
            if time.monotonic() > give_up:
                raise self._start_failed(f"was not ready within {self.options.start_timeout_s:g} s")
            time.sleep(_POLL_S)
        return self._endpoint_now()

    def _start_failed(self, what: str) -> StartFailed:
        log = self.logs(12)
        return StartFailed(f"{self.product} {self.version} {what}: {self._advice(log)}.", log)

    def _advice(self, log: str) -> str:
        """What the last lines of its log mean."""
        return next((advice for pattern, advice in ADVICE.items() if re.search(pattern, log)), "its log ends")

    def _unwritable(self, error: OSError) -> EngineError:
        where = error.filename2 or error.filename or self._data
        return EngineError(
            f"cannot prepare the data of {self.name} in {where}: {error.strerror};"
            " free some space there or choose another folder"
        )

    # Hooks ----------------------------------------------------------------------------------------

    @abstractmethod
    def _prepare(self) -> None:
        """Make the data folder and whatever else must be there before the launch."""

    @abstractmethod
    def _launch(self, env: dict[str, str]) -> Launch: ...

    @abstractmethod
    def _ready(self) -> bool: ...

    @abstractmethod
    def _endpoint_now(self) -> Endpoint: ...

    @abstractmethod
    def settings(self) -> Mapping[str, str]: ...


def _plain_environment() -> dict[str, str]:
    """The minimum a server needs, so that two machines start the same engine: no locale, proxy or PG* variables."""
    kept = {key: os.environ[key] for key in ("PATH", "TMPDIR", "TZ") if key in os.environ}
    return {"LANG": "C", "LC_ALL": "C", **kept}
