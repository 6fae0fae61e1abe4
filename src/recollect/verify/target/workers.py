"""The runner's side of the workers: started from a warm parent, driven over pipes, killed without warning.

Starting Python with a driver costs a fifth of a second. `multiprocessing`'s fork server imports libraries once and
forks from there, in a few milliseconds and before any thread exists.
"""

import multiprocessing
import os
import selectors
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import _forkserver, ensure_running
from pathlib import Path
from types import ModuleType
from typing import Protocol

from recollect.verify import clock
from recollect.verify.clock import Clock
from recollect.verify.disk.recorder import dormant_shim
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.host import folder, interrupts, processes
from recollect.verify.host.busy import patient_s
from recollect.verify.target import other_python, pipe
from recollect.verify.target.interface_choice import Form
from recollect.verify.target.login import environment_for
from recollect.verify.target.marked_text import mark
from recollect.verify.target.own_modules import PRELOADED, SEPARATOR
from recollect.verify.target.real_settings import scratch
from recollect.verify.target.worker import main as work

PRELOAD = "recollect.verify.target.warm_imports"
"""By its name: what it does takes time and is for the fork server alone."""
START_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 2.0
SETTINGS_TIMEOUT_S = 5.0
"""For one write to an empty file: a target that hangs there is told by the run itself."""


class WorkerDied(Exception):
    """The worker's process ended: killed by a fault, or by the target itself."""


class _Process(Protocol):
    """What a worker needs from its process: one from the fork server, or a program under another interpreter."""

    @property
    def pid(self) -> int | None: ...
    @property
    def exitcode(self) -> int | None: ...
    def kill(self) -> None: ...
    def join(self, timeout: float | None = None, /) -> None: ...


class Worker:
    """One worker process. `number` is its process number in the history."""

    def __init__(self, number: int, spec: str, process: _Process, connection: Connection) -> None:
        self.number = number
        self.spec = spec
        self._process = process
        self.connection = connection
        self.beside: list[Worker] = []
        """Further callers in the same process, which use the same store."""

    def shares(self, other: "Worker") -> bool:
        """Whether both are callers in one process."""
        return self._process is other._process

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, request: pipe.Word) -> None:
        try:
            self.connection.send_bytes(pipe.encode(request))
        except OSError as error:
            raise WorkerDied(self._how()) from error

    def receive(self) -> pipe.Reply:
        try:
            reply: pipe.Reply = pipe.decode_reply(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise WorkerDied(self._how()) from error
        return reply

    @property
    def crashed(self) -> bool:
        """Whether it ended by itself: a SIGKILL comes from somebody else."""
        return self._process.exitcode not in (None, -signal.SIGKILL)

    def readable(self, timeout_s: float = 0.0) -> bool:
        with suppress(OSError):
            return self.connection.poll(timeout_s)
        return True  # reading a broken pipe then reports the death

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.join(5)
        self.connection.close()

    def go_on(self) -> None:
        """Tells a worker that has stopped at a line of its store to go on."""
        with suppress(OSError):
            self.connection.send_bytes(b"go on")

    def begin_close(self) -> None:
        """Tells the target to close its store; `close` waits for it."""
        with suppress(WorkerDied):
            self.send(pipe.Close())

    def close(self) -> bool:
        """Waits for the target that was told to close; False if it took too long and was killed."""
        self._process.join(CLOSE_TIMEOUT_S)
        closed = self._process.exitcode is not None
        self.kill()
        return closed

    def _how(self) -> str:
        self._process.join(1)
        code = self._process.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        return f"the target's process ended on its own ({how})"


class Workers:
    """Starts workers for one run; all of them are gone after `close_all`."""

    def __init__(self, log: Path, preload: tuple[str, ...] = ()) -> None:
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD])
        _end_fork_server_without(preload)
        self._log = log
        self.recorded: Mapping[str, str] | None = None
        """What `Recorder.env` gave, if the workers' own calls are to be recorded, because an embedded engine lives in
        them; else None."""
        self._numbers = 0
        self._live: set[Worker] = set()
        self.clock: Clock | None = None
        """The wall clock of the next workers; None is the real one."""
        self.form: Form = ""
        """The form in which stores that do not say so are given messages; see `form_trial`."""

    def start(self, spec: str, endpoint: Endpoint, *, prepare: bool = False) -> tuple[Worker, pipe.Ready]:
        """A worker with its target opened, or `TargetBroken`."""
        worker = self.launch(spec, endpoint, prepare=prepare)
        return worker, self.wait_ready(worker)

    def launch(
        self,
        spec: str,
        endpoint: Endpoint,
        *,
        prepare: bool = False,
        callers: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> Worker:
        """Starts a worker without waiting for it; several can start side by side. With `callers`, the others in its
        process are in `beside`. `environment` is added to what the endpoint needs."""
        ours, theirs = self._context.Pipe()
        beside = [self._context.Pipe() for _ in range(callers - 1)]
        control = None if self.clock is None else str(self.clock.control)
        process = self._context.Process(
            target=work,
            args=(
                theirs,
                spec,
                endpoint,
                str(self._log),
                prepare,
                control,
                self.recorded,
                {**environment_for(endpoint), **(environment or {})},
                [end for _, end in beside],
                self.form,
            ),
            daemon=True,
        )
        with _without_main():
            start_fork_server()
            try:
                process.start()
            except (EOFError, OSError) as error:
                # The fork server is gone: it imports these libraries before anything else.
                ours.close()
                raise TargetBroken(
                    f"target {spec!r}: a library that {spec.partition(':')[0]} imports ended its process"
                ) from error
            finally:
                theirs.close()
                for _, end in beside:
                    end.close()
        worker = self._started(spec, process, ours)
        worker.beside = [self._started(spec, process, own) for own, _ in beside]
        return worker

    def settings(self, spec: str, endpoint: Endpoint, ready: pipe.Ready) -> list[dict[str, str]]:
        """What the target's connections are set to; a target that connects only when it is called is asked on a
        scratch file, by a process that ends then."""
        if ready.settings:
            return ready.settings
        with tempfile.TemporaryDirectory(prefix="settings-", dir=folder.current()) as place:
            if (apart := scratch(endpoint, Path(place))) is None:
                return []
            others = Workers(self._log)  # so that the run's own processes are numbered as without it
            others.form = self.form
            try:
                worker, _ = others.start(spec, apart, prepare=True)
            except TargetBroken:
                return []
            try:
                worker.send(pipe.WriteAndTell(pipe.Said(0, mark(0, "is anybody there?"))))
                told = worker.receive() if worker.readable(patient_s(SETTINGS_TIMEOUT_S)) else None
            except WorkerDied:
                told = None
            finally:
                others.kill(worker)
            return told.settings if isinstance(told, pipe.ToldSettings) else []

    def launch_under(self, python: str, spec: str, endpoint: Endpoint) -> Worker:
        """The same under another interpreter, which has the other release installed."""
        ours, theirs = self._context.Pipe()
        control = None if self.clock is None else str(self.clock.control)
        try:
            with _movable_clock(), dormant_shim(), folder.marked():
                process = other_python.start(
                    python,
                    ours,
                    theirs,
                    spec=spec,
                    endpoint=endpoint,
                    log=self._log,
                    control=control,
                    recorded=self.recorded,
                    form=self.form,
                )
        except OSError as error:
            raise TargetBroken(
                f"--previous-python {python}: {error.strerror}; give the path of a Python"
            ) from None
        return self._started(spec, process, ours)

    def _started(self, spec: str, process: _Process, connection: Connection) -> Worker:
        worker = Worker(self.number(), spec, process, connection)
        self._live.add(worker)
        return worker

    def wait_ready(self, worker: Worker) -> pipe.Ready:
        limit_s = patient_s(START_TIMEOUT_S)
        if not worker.readable(limit_s):
            self.kill(worker)
            raise TargetBroken(
                f"target {worker.spec!r}: it did not open within {limit_s:.0f} s: its factory hangs, or this machine "
                "is too busy"
            )
        try:
            reply = worker.receive()
        except WorkerDied as death:
            self.kill(worker)
            raise TargetBroken(f"target {worker.spec!r}: {death} when it was opened") from None
        if isinstance(reply, pipe.Ready):
            return reply
        self.kill(worker)
        raise TargetBroken(
            reply.reason if isinstance(reply, pipe.Broken) else f"unexpected first word {reply}"
        )

    def number(self) -> int:
        """The next process number in the history; also for clients that are not workers."""
        self._numbers += 1
        return self._numbers - 1

    def kill(self, worker: Worker) -> None:
        self._live.discard(worker)
        worker.kill()

    def close(self, *workers: Worker) -> int:
        """Closes them side by side; returns how many did not close in time."""
        for worker in workers:
            self._live.discard(worker)
            worker.begin_close()
        return sum(not worker.close() for worker in workers)

    def close_all(self) -> None:
        """Ends all workers, and whatever the targets have started and left running."""
        while self._live:
            self.kill(self._live.pop())
        if self._numbers:
            processes.end_strays()


_imports: set[str] = set()
"""What the fork server has imported, or will import when it starts."""


def _end_fork_server_without(preload: tuple[str, ...]) -> None:
    """A process that runs cells of several engines starts its fork server again with what it lacks: every worker would
    import that by itself. Workers that are alive keep the server that they came from."""
    if not _imports.issuperset(preload) and not multiprocessing.active_children():
        _imports.update(preload)
        server: int | None = _forkserver._forkserver_pid  # type: ignore[attr-defined]
        if server is not None:  # one that hangs in a module would never see that it is told to end
            with suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
        _forkserver._stop()  # type: ignore[attr-defined]


def start_fork_server(preload: tuple[str, ...] = ()) -> None:
    """Each process has one. Starting it here lets the clock of its children be moved and their calls be recorded."""
    _imports.update(preload)
    resource_tracker.ensure_running()  # the fork server would start it too, but would let interrupts through
    with (
        _movable_clock(),
        dormant_shim(),
        folder.marked(),
        _socket_in_run_folder(),
        _importing(_imports),
        interrupts.not_inherited(),
    ):
        ensure_running()


class TargetBroken(Exception):
    """The target could not be opened: one sentence for the person who named it."""


class Listener:
    """Waits for any of several workers."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, worker: Worker) -> None:
        self._selector.register(worker.connection.fileno(), selectors.EVENT_READ, worker)

    def remove(self, worker: Worker) -> None:
        self._selector.unregister(worker.connection.fileno())

    def wait(self, timeout_s: float) -> Iterator[Worker]:
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            yield key.data

    def close(self) -> None:
        self._selector.close()


@contextmanager
def _movable_clock() -> Iterator[None]:
    """Preloads the clock into a fork server that starts now; nobody else inherits it. At first it shows real time."""
    former = os.environ.get("LD_PRELOAD")
    if clock.unavailable() is None:
        os.environ |= clock.preloading(former or "")
    try:
        yield
    finally:
        if former is None:
            os.environ.pop("LD_PRELOAD", None)
        else:
            os.environ["LD_PRELOAD"] = former


@contextmanager
def _socket_in_run_folder() -> Iterator[None]:
    """Makes a fork server that starts now put its socket into the run folder: a killed runner cannot remove
    `multiprocessing`'s own folder, and the warden does not know it."""
    settings: dict[str, object] = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    former = settings.get("tempdir")
    settings["tempdir"] = str(folder.socket_folder(folder.current()))
    try:
        yield
    finally:
        settings["tempdir"] = former


@contextmanager
def _importing(modules: Iterable[str]) -> Iterator[None]:
    """Makes a fork server that starts now import these modules, and survive whatever they raise."""
    os.environ[PRELOADED] = SEPARATOR.join(sorted(modules))
    try:
        yield
    finally:
        del os.environ[PRELOADED]


@contextmanager
def _without_main() -> Iterator[None]:
    """Keeps the fork server's children from importing our own main module again, whatever it is (pytest, a script)."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
