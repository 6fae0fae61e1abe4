"""A run under way, as its fault sees it: the engine, the clients, and the record of what is done to them.

Before a fault is recorded, everything that already arrived is read (`Driver.drain`): an acknowledgement that lay in a
pipe came before the fault, and the history must say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn, cast

from recollect.secret import Scrubber
from recollect.verify import engines
from recollect.verify.engines import Endpoint, Engine, EngineError, EngineOptions, StartFailed
from recollect.verify.judging.history import HistoryWriter
from recollect.verify.judging.op import FaultDetail
from recollect.verify.running import logs
from recollect.verify.running.clients import Client, Clients
from recollect.verify.running.driver import QUIET_S, Driver
from recollect.verify.running.notes import Notes, RunSkipped, RunStopped
from recollect.verify.running.scenario import Scenario
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.workloads import Intent
from recollect.verify.target import pipe


class LiveRun:
    """See `faults.faulted_run` for what a fault may use of it, and when."""

    def __init__(self, scenario: Scenario, folder: Path, clients: Clients, notes: Notes) -> None:
        self.scenario = scenario
        self.folder = folder
        self.clients = clients
        self.rng = scenario.rng("fault")
        self.engine_env: dict[str, str] = {}
        self.engine_is_away = False
        self._engine_spec = scenario.engine
        self._engine: Engine | None = None
        self._notes = notes
        self._at_end = ExitStack()
        self._stopped_at = 0.0
        self._sync_s = 0.0
        self._history: HistoryWriter
        self._transcript: Transcript
        self._driver: Driver

    # ---- its beginning and its end

    def make_engine(self, data: Path | None = None) -> None:
        """`data` is an existing folder for it to start on."""
        if self.scenario.url is not None:
            # Somebody else's engine has no `kill`; the obstacles of the faults that would need one see to it.
            self._engine = cast(Engine, engines.attach(self.scenario.url.reveal()))
            return
        config = self.scenario.engine_config
        self._engine = engines.create(
            self._engine_spec,
            self.scenario.policy,
            provider=self.scenario.provider,
            config=None if config is None else Path(config),
            options=EngineOptions(data=data),
        )

    def first_start(self) -> None:
        self.clients.endpoint = self.engine.start(self.engine_env) if self.engine_env else self.engine.start()

    def begin(self, history: HistoryWriter, transcript: Transcript, driver: Driver) -> None:
        """From here on clients work, and what happens is recorded."""
        self._history, self._transcript, self._driver = history, transcript, driver

    def undo(self) -> None:
        """Undoes what faults left, the latest first; one failure does not stop the others."""
        self._at_end.close()

    def end_engine(self) -> None:
        if self._engine is None:
            return
        with ExitStack() as stack:
            stack.callback(self._engine.close if self.scenario.url is None else self._engine.stop)
            logs.keep_engine_log(self._engine, self.folder, self.scrubber)

    # ---- what it consists of

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "the engine has not been created yet"
        return self._engine

    @property
    def endpoint(self) -> Endpoint:
        return self.clients.endpoint

    @property
    def scrubber(self) -> Scrubber:
        """Takes credentials out of whatever this run has to say."""
        return logs.scrubber_of(self.scenario.url, getattr(self.clients, "endpoint", None))

    @property
    def written(self) -> int:
        return self._transcript.written

    @property
    def retention_s(self) -> float | None:
        return self._transcript.retention_s

    # ---- before it starts, and when it ends

    def use_engine(self, spec: str) -> None:
        self._engine_spec = spec

    def at_end(self, undo: Callable[[], None]) -> None:
        self._at_end.callback(undo)

    # ---- time passing

    def go_on(self, duration_s: float) -> None:
        self._driver.go_on(duration_s)

    def work_on(self, duration_s: float) -> None:
        self._driver.work_on(duration_s)

    def settle(self, quiet_s: float = QUIET_S) -> None:
        self._driver.settle(quiet_s)

    def do(
        self, guest: Client, intent: Intent, on_line: Callable[[str], None] | None = None
    ) -> pipe.Reply | None:
        return self._driver.do(guest, intent, on_line)

    @contextmanager
    def striking(self, name: str, detail: str = "", offset_s: float = 0.0) -> Iterator[None]:
        self.struck_further(name, detail, offset_s)
        yield
        self._driver.await_older(self._stopped_at)
        self._stopped_at = 0.0
        self._driver.drain()
        self._history.fault_healed(name, FaultDetail(detail=detail, sync_s=self._sync_s))

    def struck_further(self, name: str, detail: str, offset_s: float) -> None:
        self._driver.drain()
        self._history.fault_injected(name, FaultDetail(detail=detail, offset_s=offset_s))

    # ---- the engine

    def kill_engine(self, kill: Callable[[], None] | None = None, since: float | None = None) -> None:
        since = time.monotonic() if since is None else since
        if kill is not None:
            kill()
        elif self.engine.embedded:
            self.clients.kill_all()
        else:
            self.engine.kill()
        self._record_stop(since)

    def syncs_took(self, longest_s: float) -> None:
        self._sync_s = longest_s

    def stop_engine(self) -> None:
        if self.engine.embedded:
            self.close_clients()
        else:
            self.engine.stop()
        self._record_stop(time.monotonic())

    def _record_stop(self, since: float) -> None:
        self._stopped_at = time.monotonic()
        logs.keep_engine_log(self.engine, self.folder, self.scrubber)
        self._driver.drain()
        self._history.engine_stopped(FaultDetail(ago_s=round(time.monotonic() - since, 6)))

    def start_engine(self, start: Callable[[], Endpoint] | None = None) -> None:
        try:
            if start is not None:
                self.clients.endpoint = start()
            elif not self.engine.embedded:
                self.clients.endpoint = self.engine.restart(self.engine_env or None)
        except EngineError as refusal:
            told = self.scrubber(refusal.in_one_line if isinstance(refusal, StartFailed) else str(refusal))
            self._history.engine_refused(told)
            raise RunStopped(f"the engine did not start again: {told}") from refusal
        self._history.engine_started()
        if self.engine.embedded:
            self.clients.start_missing()

    # ---- the clients

    def restart_clients(self) -> None:
        self.close_clients()
        self.clients.start_missing()

    def close_clients(self) -> None:
        self._driver.settle()
        self.clients.leave()

    # ---- its outcome

    def remark(self, text: str) -> None:
        self._notes.remarks.append(text)

    def give_up(self, reason: str) -> NoReturn:
        raise RunStopped(reason)

    def skip(self, reason: str) -> NoReturn:
        raise RunSkipped(reason)
