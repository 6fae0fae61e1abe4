"""A service under test: any command that serves HTTP and keeps its data in a folder.

    def test_the_memory_survives(service_under_test):
        service = service_under_test("uvicorn myapp:app --port {port}", health="/health", data_env="MYAPP_DATA")
        with service.kill_after_response("POST", "/chat"):
            httpx.post(f"{service.base_url}/chat", json={"message": "my name is Xiao Li"})
        service.restart()
        assert "Xiao Li" in httpx.get(f"{service.base_url}/memories").text

The service runs in a process group of its own, with its own data folder, whose path it gets in an environment variable.
It is behind a proxy (`service_proxy`) that can kill it the moment its answer is complete, lose the answer, or be a bad
network. `base_url` stays the same across restarts, so an open page or client finds it again. With `disk=True` its
folder is recorded and can lose power (`service_disk`), with `engine=` the way to its engine can break
(`service_engine`), with `clock=True` its clock can be moved.

The fixture is `recollect.verify.suite.service_fixture.service_under_test`.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.verify.clock import Clock
from recollect.verify.disk.recorder import Faults
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.suite.service_disk import RecordedFolder
from recollect.verify.suite.service_engine import EngineLink
from recollect.verify.suite.service_failed import ServiceFailed as ServiceFailed
from recollect.verify.suite.striking import for_a_block, seconds_of

PROXY = Path(__file__).with_name("service_proxy.py")
POLL_S = 0.02
STRIKE_TIMEOUT_S = 30.0
LOG_LINES_SHOWN = 30


class Service:
    """One command on one data folder. Made by the fixture `service_under_test`."""

    def __init__(
        self,
        command: str | Sequence[str],
        folder: Path,
        *,
        health: str | Callable[[str], bool] = "/health",
        data_env: str = "DATA_DIR",
        data: Path | None = None,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        port_env: str | None = "PORT",
        start_timeout_s: float = 30.0,
        stop_timeout_s: float = 30.0,
        disk: bool | str = False,
        clock: bool = False,
        engine: Endpoint | str | None = None,
        engine_env: str = "DATABASE_URL",
    ) -> None:
        """`disk` records the data folder; ``"strict"`` is a disk on which also names need an fsync of their folder."""
        self.folder = folder
        self.data = data or folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.log_path = folder / "service.log"
        self._health = health
        self._start_timeout_s, self._stop_timeout_s = start_timeout_s, stop_timeout_s
        self._port, self._is_fixed = port or _free_port(), port is not None
        self._port_env = port_env
        self._parts = shlex.split(command) if isinstance(command, str) else list(command)
        self._env = {**os.environ, **(env or {}), data_env: str(self.data)}
        self._disk = (
            RecordedFolder(self.data, self._parts, "strict" if disk == "strict" else "ext4") if disk else None
        )
        self._clock = Clock() if clock else None
        self._engine = None if engine is None else EngineLink(engine)
        if self._engine is not None:
            self._env[engine_env] = self._engine.url
        self._process: subprocess.Popen[bytes] | None = None
        self._proxy = _ProxyProcess()
        self.base_url = f"http://127.0.0.1:{self._proxy.port}"

    @property
    def direct_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    # ---- its life

    def start(self) -> "Service":
        """Starts it on its data and returns once it is healthy."""
        if self.alive:
            raise ServiceFailed("the service is already running; stop() or kill() it first")
        env = self._env | self._preloaded()
        self._process = self._launch(env)
        self._proxy.order(service=self._port, group=self._process.pid)
        self._await_health(self._process)
        return self

    def _preloaded(self) -> dict[str, str]:
        """What its processes load ahead of everything else."""
        env = {} if self._disk is None else self._disk.begin()
        if self._clock is not None:
            env |= self._clock.env(env.get("LD_PRELOAD", os.environ.get("LD_PRELOAD", "")))
        return env

    def _launch(self, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self._started_env = dict(env)
        port_env = {} if self._port_env is None else {self._port_env: str(self._port)}
        words = [
            part.replace("{port}", str(self._port)).replace("{data}", str(self.data)) for part in self._parts
        ]
        with self.log_path.open("ab") as log:
            try:
                return subprocess.Popen(
                    words,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env={**env, **port_env},
                    start_new_session=True,
                )
            except OSError as error:
                raise ServiceFailed(
                    f"{words[0]!r} cannot be started: {error.strerror}; install it, or give its full path"
                ) from None

    def _await_health(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while not self.healthy():
            if process.poll() is not None:
                raise ServiceFailed(f"it ended with {process.returncode} before it was healthy:\n{self.log}")
            if time.monotonic() > deadline:
                self._end_group(process.pid)
                process.wait()
                raise ServiceFailed(
                    f"not healthy after {self._start_timeout_s:g} s: {self._asked()}\n{self._end_of_log()}"
                )
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Asks it to stop, as an operator would, and waits."""
        self._stop(self._running())

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        self._await_end(process)

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        """It was asked to end; many servers take a second SIGTERM for something else."""
        try:
            process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            self._end_group(process.pid)
            process.wait()
            raise ServiceFailed(
                f"still there {self._stop_timeout_s:g} s after SIGTERM:\n{self.log}"
            ) from None
        self._end_group(process.pid)

    def kill(self) -> None:
        """SIGKILL to all its processes at once. Not a power loss."""
        process = self._running()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._reap(process)

    def restart(self) -> "Service":
        """Starts it again on the same data; kills it first if it is running."""
        if self.alive:
            self.kill()
        return self.start()

    def rolling_restart(self) -> "Service":
        """Starts a second one on the same data, sends requests there once it is healthy, then stops the first.

        The first one finishes the requests it has begun."""
        former = self._running()
        if self._is_fixed:
            raise ServiceFailed(
                "rolling_restart() needs two ports: pass `{port}` or `port_env`, and not `port`"
            )
        before, self._port = self._port, _free_port()
        process = self._launch(self._started_env)
        try:
            self._await_health(process)
        except ServiceFailed:
            self._port = before
            raise
        self._process = process
        self._proxy.order(service=self._port, group=process.pid)
        self._stop(former)
        return self

    def wipe(self) -> None:
        """Deletes its data, as a lost volume does. It must be down."""
        if self.alive:
            raise ServiceFailed("wipe() needs the service down: kill() or stop() it first")
        for path in self.data.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for part in (self._proxy, self._engine, self._clock, self._disk):
                if part is not None:
                    stack.callback(part.close)
            if self.alive:
                self.kill()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> str:
        """What it printed, across all starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def healthy(self) -> bool:
        if not isinstance(self._health, str):
            return self._health(self.direct_url)
        try:
            with urllib.request.urlopen(f"{self.direct_url}{self._health}", timeout=5) as response:
                return bool(200 <= response.status < 300)
        except (urllib.error.URLError, OSError, ValueError):
            return False

    def _asked(self) -> str:
        if not isinstance(self._health, str):
            return f"the function given as health was never true for {self.direct_url}"
        return (
            f"GET {self.direct_url}{self._health} was never answered with 2xx; does the command listen on {{port}}, "
            "and is health= its path? It printed, at the end:"
        )

    def _end_of_log(self) -> str:
        return "\n".join(self.log.splitlines()[-LOG_LINES_SHOWN:])

    # ---- striking

    @for_a_block
    def kill_after_response(self, method: str = "POST", path: str = "/") -> Iterator[None]:
        """The next such request is answered in full, and the service is dead before the answer arrives.

        After the block the service is down; `restart` brings it back on the same data.
        """
        with self._strike("kill", method, path):
            yield
        assert self._process is not None
        self._reap(self._process)

    @for_a_block
    def power_loss_after_response(self, method: str = "POST", path: str = "/") -> Iterator[None]:
        """The next such request is answered in full, and the power is gone: what was not synced to disk by then is not
        in the data folder. `restart` brings the service back on it. Needs ``disk=True``."""
        self._recorded("power_loss_after_response")
        with self.kill_after_response(method, path):
            yield
        self._recorded("power_loss_after_response").cut_power()

    def power_loss(self) -> list[str]:
        """The same, now. Returns the names of the files that lost something."""
        disk = self._recorded("power_loss")
        if self.alive:
            self.kill()
        return disk.cut_power()

    @for_a_block
    def stop_during_response(self, method: str = "POST", path: str = "/") -> Iterator[None]:
        """SIGTERM as soon as the first piece of the next such answer has gone to the client; what else the service
        sends is passed on. After the block it has ended, or `ServiceFailed` says that it did not."""
        process = self._running()
        with self._strike("term", method, path):
            yield
        self._await_end(process)

    @for_a_block
    def pause(self) -> Iterator[None]:
        """All its processes stand still; connections stay open."""
        group = self._running().pid
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGCONT)

    # ---- a bad network

    @for_a_block
    def latency(self, seconds: float) -> Iterator[None]:
        """Requests and answers through `base_url` take this much longer, each way."""
        self._proxy.order(delay_s=seconds_of("latency", seconds))
        try:
            yield
        finally:
            self._proxy.order(delay_s=0.0)

    @for_a_block
    def cut(self) -> Iterator[None]:
        """Connections through `base_url` are reset, new ones too. The service still does what it was asked before."""
        self._proxy.order(cut=True)
        try:
            yield
        finally:
            self._proxy.order(cut=False)

    @property
    def engine(self) -> EngineLink:
        """The way from the service to its engine: `latency`, `cut`, `silent`. Needs ``engine=``."""
        if self._engine is None:
            raise ServiceFailed(
                "this service was started without engine=…: give the address of the service's engine, and as engine_env"
                " the name of the variable that the service reads it from"
            )
        return self._engine

    # ---- a bad disk, and a bad clock

    @for_a_block
    def slow_fsync(self, seconds: float = 1.5) -> Iterator[None]:
        """Every fsync takes this much longer."""
        with self._disk_faults("slow_fsync", Faults(sync_delay_s=seconds_of("slow_fsync", seconds))):
            yield

    @for_a_block
    def failing_fsync(self) -> Iterator[None]:
        """Every fsync fails with EIO, and what it should have written is not on the disk."""
        with self._disk_faults("failing_fsync", Faults.fsync_error()):
            yield

    @for_a_block
    def disk_full(self, left_bytes: int = 0) -> Iterator[None]:
        """Its files may grow by this many bytes, then writes fail with ENOSPC."""
        with self._disk_faults("disk_full", Faults(space_left_bytes=left_bytes)):
            yield

    @contextlib.contextmanager
    def _disk_faults(self, name: str, faults: Faults) -> Iterator[None]:
        disk = self._recorded(name)
        disk.faults(faults)
        try:
            yield
        finally:
            disk.faults(Faults())

    def _recorded(self, name: str) -> RecordedFolder:
        if self._disk is None:
            raise ServiceFailed(
                f"{name} needs service_under_test(…, disk=True): its folder must be recorded from the start"
            )
        return self._disk

    @property
    def clock(self) -> Clock:
        """Its wall clock: `move(seconds)`, `freeze()`, `heal()`. Needs ``clock=True``."""
        if self._clock is None:
            raise ServiceFailed(
                "clock needs service_under_test(…, clock=True): it is loaded when the service starts"
            )
        return self._clock

    @for_a_block
    def drop_response(self, method: str = "POST", path: str = "/") -> Iterator[None]:
        """The next such request is served, but its answer never arrives: the client is cut off."""
        with self._strike("drop", method, path):
            yield

    @contextlib.contextmanager
    def _strike(self, kind: str, method: str, path: str) -> Iterator[None]:
        self._running()
        self._proxy.order(strike=kind, method=method, path=path)
        try:
            yield
            if not self._proxy.struck(STRIKE_TIMEOUT_S):
                raise ServiceFailed(
                    f"no {method} {path} was answered through base_url within {STRIKE_TIMEOUT_S:g} s"
                )
        finally:
            self._proxy.order(strike=None)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise ServiceFailed(f"the service is not running:\n{self.log}")
        return self._process

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(self._stop_timeout_s)
        self._end_group(process.pid)

    def _end_group(self, group: int) -> None:
        """Waits until no process of the group is left, so that none goes on writing."""
        deadline = time.monotonic() + self._stop_timeout_s
        while _group_lives(group):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise ServiceFailed(f"processes of the service are still there:\n{self.log}")
            time.sleep(POLL_S)


class _ProxyProcess:
    """The process that runs `recollect.verify.suite.service_proxy`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(PROXY), "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.port = int(self._read()["port"])
        self._strikes = 0

    def order(self, **content: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(content) + "\n")
        self._process.stdin.flush()
        while "done" not in self._read():
            self._strikes += 1

    def struck(self, timeout_s: float) -> bool:
        """Whether the strike was carried out; waits for one that is under way."""
        deadline = time.monotonic() + timeout_s
        while not self._strikes:
            self.order()
            if self._strikes or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        struck, self._strikes = self._strikes > 0, 0
        return struck

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ServiceFailed("the proxy in front of the service ended")
        content: dict[str, Any] = json.loads(line)
        return content


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return any(_state(pid) not in ("Z", "X") for pid in _pids_of(group))


def _pids_of(group: int) -> list[int]:
    if not Path("/proc/self").exists():
        return [group]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[2]) == group:
                    found.append(int(entry.name))
    return found


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return "X"
