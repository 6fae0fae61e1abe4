"""One run: clients in their own processes, a fault in the middle, and a history of what was asked and what came back.

The runner is the only one who writes the history, and it has one thread: what it has not received was not acknowledged.
A run goes: start the engine, open the clients, let them work, let the fault strike and heal, let them work on, wait
until nothing is under way, then read every session again from a fresh process.

Before a fault is recorded, everything that already arrived is read (`_drain`): an acknowledgement that lay in a pipe
came before the fault, and the history must say so.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import msgspec

from recollect import __version__
from recollect.verify import engines
from recollect.verify.clock import Clock
from recollect.verify.disk.recorder import Recorder
from recollect.verify.engines import (
    Endpoint,
    Engine,
    EngineError,
    NotInstalled,
    Replica,
    StartFailed,
)
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import OK_OPS_MIN, Disturbance, Header, Trait
from recollect.verify.judging.verdict import Verdict
from recollect.verify.running import engine_inspection
from recollect.verify.running.clients import Notes, Seat
from recollect.verify.running.faults import FAULTS, Fault
from recollect.verify.running.proxy import Proxy
from recollect.verify.running.scenario import Scenario, save
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.workloads import (
    CALLED,
    WORKLOADS,
    Intent,
    Plan,
    ReadBack,
    Seek,
    Workload,
    reads,
)
from recollect.verify.running.workloads import Client as Planner
from recollect.verify.target import pipe
from recollect.verify.target.workers import (
    CLOSE_TIMEOUT_S,
    Client,
    ClientDied,
    Clients,
    Listener,
    TargetBroken,
)

OPERATION_TIMEOUT_S = 15.0
"""An operation that takes longer hangs: its client is killed, and the outcome is unknown."""

FIRST_TIMEOUT_S = 5.0
SETTLE_TIMEOUT_S = 20.0
QUIET_S = 0.05
OLDER_TIMEOUT_S = 3.0
FINAL_HANGS_MAX = 2
"""Final reads that may hang before the rest is left unread: a cell has to end in time to say what hangs."""

ENGINE_LOG = "engine.log"
LOG_LINES_MAX = 200
"""Of each start of the engine."""

DEATHS_MAX = 5
"""Processes that the target itself may end before the run is given up."""


class RunStopped(Exception):
    """The run cannot go on; the message is the reason of its `unknown` verdict."""


class RunSkipped(Exception):
    """There is nothing to run; the message is the reason of its `skipped` verdict."""


class Run:
    """The run as faults see it: the engine, the clients, and time passing (`go_on`)."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        progress: Callable[[str], None] = lambda step: None,
        preload: tuple[str, ...] = (),
    ) -> None:
        self.scenario = scenario
        self.folder = folder
        self.rng = scenario.rng("fault")
        self.notes = Notes()
        self.fault: Fault = FAULTS[scenario.fault]
        self.workload: Workload = WORKLOADS[scenario.workload]
        self.abilities: frozenset[str] = frozenset()
        self.engine: Engine
        self.endpoint: Endpoint
        self.transcript: Transcript
        self.history: HistoryWriter
        self.engine_spec = scenario.engine
        self.engine_env: dict[str, str] = {}
        self.recorder: Recorder | None = None
        self.shown: Callable[[Endpoint], Endpoint] = lambda endpoint: endpoint
        """How clients see the endpoint; a proxy changes it."""
        self.proxy: Proxy | None = None
        self.clock: Clock | None = None
        self.replica: Replica | None = None
        self.on_line: Callable[[Seat, str], None] | None = None
        self._at_line: tuple[Seat, str] | None = None
        self._stopped_at = 0.0
        self._progress = progress
        self._clients = Clients(folder / "target.log", preload or scenario.modules)
        self._listener = Listener()
        self.seats: dict[int, Seat] = {}
        self._heal: list[Callable[[], None]] = []
        self.operations = 0
        self.engine_version = self.provider = ""

    # ---- the whole run

    def execute(self) -> Verdict:
        """Runs the scenario and judges its history."""
        save(self.scenario, self.folder)
        (self.folder / ENGINE_LOG).unlink(missing_ok=True)
        path = self.folder / "history.jsonl"
        reason: str | None = None
        try:
            self._start()
            self._work()
        except (NotInstalled, RunSkipped) as nothing:
            return Verdict(status="skipped", reason=str(nothing))
        except (RunStopped, TargetBroken, EngineError) as stopped:
            reason = str(stopped)
        except ClientDied as death:
            reason = f"in the middle of the fault, {death}"
        finally:
            self._end()
        if not path.exists():
            return Verdict(status="unknown", reason=reason)
        verdict = analyze(History(path))
        if reason is not None and verdict.status in ("held", "unknown"):
            return msgspec.structs.replace(verdict, status="unknown", reason=reason)
        if verdict.status == "unknown" and self.notes.hangs:
            return msgspec.structs.replace(verdict, reason=f"{verdict.reason}: {self.notes.hangs[0]}")
        return verdict

    def _start(self) -> None:
        self._progress("starting")
        self.fault.arrange(self)
        self.engine = self._make_engine()
        self.fault.record(self)
        self.endpoint = self.engine.start(self.engine_env) if self.engine_env else self.engine.start()
        self.engine_version, self.provider = self.engine.version, self.engine.provider
        self.fault.attach(self)
        first = self._clients.launch(self.scenario.target, self.shown(self.endpoint), prepare=True)
        ready = self._clients.wait_ready(first)
        self.abilities = frozenset(ready.abilities)
        self._check_abilities()
        self._open_history(ready)
        self._seat(first, self.workload.plan, writer=True)
        self.start_writers()
        self._start_readers()

    def _make_engine(self) -> Engine:
        if self.scenario.url is not None:
            # Somebody else's engine has no `kill`; the obstacles of the faults that would need one see to it.
            return cast(Engine, engines.attach(self.scenario.url))
        return engines.create(
            self.engine_spec,
            self.scenario.policy,
            provider=self.scenario.provider,
            config=None if self.scenario.engine_config is None else Path(self.scenario.engine_config),
        )

    def _check_abilities(self) -> None:
        if (misfit := self.workload.misfit(self.abilities)) is not None:
            raise RunStopped(misfit)

    def _open_history(self, ready: pipe.Ready) -> None:
        traits: tuple[Trait, ...] = tuple(ready.traits)  # type: ignore[arg-type]
        header = Header(
            recollect=__version__,
            seed=self.scenario.seed,
            target=self.scenario.target,
            engine=self.scenario.engine_name,
            engine_version=self.engine_version,
            provider=self.provider,
            policy=self.scenario.policy,
            fault=self.scenario.fault,
            workload=self.scenario.workload,
            traits=traits,
            retain_s=self.scenario.retain_s,
        )
        file = (self.folder / "history.jsonl").open("wb")
        self.history = HistoryWriter(file, header)
        self.transcript = Transcript(
            self.history, retries="turn" in self.abilities or self.scenario.fault == "lost-ack"
        )
        wanted = (self.scenario.writers, self.scenario.readers)
        writers, self._readers_wanted = self.fault.clients.get(self.scenario.variant, wanted)
        single = "single_writer" in traits or not self.workload.many_writers
        self._writers_wanted = 1 if single else writers

    def _work(self) -> None:
        self._progress("working")
        self.go_on(self.scenario.before_s * self.rng.uniform(0.7, 1.3))
        self._await_writes()
        self._progress(self.scenario.fault)
        self.fault.strike(self)
        self._progress("working")
        self.go_on(self.scenario.after_s)
        self._progress("reading")
        self.settle()
        self.read_everything()
        self._ask_the_engine()

    def _await_writes(self) -> None:
        """On a slow machine the fault would strike before there is anything to lose, or anything to judge by."""
        end = time.monotonic() + FIRST_TIMEOUT_S
        while time.monotonic() < end and (
            not self.transcript.written or self.transcript.succeeded < OK_OPS_MIN
        ):
            self.go_on(0.02)

    def _ask_the_engine(self) -> None:
        """Where a session came back short, looks whether the engine still has the rows."""
        short = self.transcript.short_sessions()
        held = engine_inspection.numbers_in(self.endpoint.engine, self.endpoint) if short else None
        if held is not None:
            process = self._clients.number()
            for session in short:
                self.transcript.counted(process, session, held)

    def _end(self) -> None:
        """Last in, first out; what goes wrong with one of them keeps none of the others."""
        with ExitStack() as stack:
            if hasattr(self, "engine"):
                stack.callback(self.engine.close if self.scenario.url is None else self.engine.stop)
                stack.callback(self._keep_engine_log)
            if hasattr(self, "history"):
                stack.callback(self.history.close)
            stack.callback(self._listener.close)
            stack.callback(self._clients.close_all)
            for heal in self._heal:
                stack.callback(heal)

    def _keep_engine_log(self) -> None:
        """What it said since its last start; a run has several starts."""
        with (self.folder / ENGINE_LOG).open("a") as log:
            log.write(self.engine.logs(LOG_LINES_MAX) + "\n")

    # ---- time passing

    def go_on(self, duration_s: float) -> None:
        """Lets the clients work for a while."""
        end = time.monotonic() + duration_s
        while (left_s := end - time.monotonic()) > 0:
            for seat in list(self.seats.values()):
                if seat.intent is None and not seat.ended:
                    self._ask(seat)
            if not self._hear(left_s):
                self._check_hangs()

    def settle(self, quiet_s: float = QUIET_S) -> None:
        """Waits until nothing is under way any more, then lets the engine be quiet for a moment."""
        end = time.monotonic() + SETTLE_TIMEOUT_S
        while any(seat.intent is not None for seat in self.seats.values()):
            if not self._hear(0.1):
                self._check_hangs()
            if time.monotonic() > end:
                for seat in [seat for seat in self.seats.values() if seat.intent is not None]:
                    self._hung(seat)
        time.sleep(quiet_s)

    def read_everything(self) -> None:
        """Reads every session that was written to, from a process that has never seen them.

        A reader that does not survive a session is followed by another one, which goes on with the next.
        """
        left = list(self.transcript.sessions)
        hangs_max = len(self.notes.hangs) + FINAL_HANGS_MAX
        for _ in range(DEATHS_MAX):
            if not left or len(self.notes.hangs) >= hangs_max:
                return
            client = self._clients.launch(self.scenario.target, self.shown(self.endpoint))
            try:
                self._clients.wait_ready(client)
            except TargetBroken as broken:
                # A store that refuses to open is loud about its loss: every session is unreadable.
                for session in left:
                    self.transcript.refused_read(client.number, session, str(broken))
                return
            seat = self._seat(client, lambda planner: self._final_reads(left), writer=False)
            while not seat.ended and client.number in self.seats:
                if seat.intent is None:
                    self._ask(seat)
                elif not self._hear(0.5):
                    self._check_hangs()

    def _final_reads(self, left: list[str]) -> Plan:
        """All of each session, and its end; a session is taken off the list before it is read."""
        ends = (None, 20) if "last" in self.abilities and not self.workload.unmarked else (None,)
        while left:
            session = left.pop(0)
            for last in ends:
                yield ReadBack(session, last=last)
            if "search" in self.abilities:
                yield Seek(session)

    # ---- what faults do

    @property
    def writers(self) -> list[Client]:
        return [seat.client for seat in self.seats.values() if seat.writer]

    @contextmanager
    def striking(self, name: str, detail: str = "", offset_s: float = 0.0) -> Iterator[None]:
        """Records that the fault is injected, and, when the block ends, that it is healed."""
        self._drain()
        self.history.fault_injected(name, Disturbance(detail=detail, offset_s=offset_s))
        yield
        self._await_older()
        self._drain()
        self.history.fault_healed(name, Disturbance(detail=detail))

    def _await_older(self) -> None:
        """What was asked before the engine stopped may have been done before it did: a store that is slow to say so
        is waited for, because its acknowledgement does not belong behind the healing."""
        end = time.monotonic() + OLDER_TIMEOUT_S
        while time.monotonic() < end and any(
            seat.intent is not None and seat.since < self._stopped_at for seat in self.seats.values()
        ):
            self.go_on(0.01)
        self._stopped_at = 0.0

    def kill_engine(self) -> None:
        if self.engine.embedded:
            self.kill_clients()
        else:
            self.engine.kill()
        self._record_stop()

    def stop_engine(self) -> None:
        if self.engine.embedded:
            self._close_seats()
        else:
            self.engine.stop()
        self._record_stop()

    def _record_stop(self) -> None:
        self._stopped_at = time.monotonic()
        self._keep_engine_log()
        self._drain()
        self.history.engine_stopped()

    def start_engine(self, start: Callable[[], Endpoint] | None = None) -> None:
        """Starts it again on its own data; an engine that refuses ends the run, as a finding."""
        try:
            if start is not None or not self.engine.embedded:
                found = (start or self.restart)()
                self.endpoint = replace(
                    found, settings=self.endpoint.settings, replicas=self.endpoint.replicas
                )
        except EngineError as refusal:
            told = refusal.in_one_line if isinstance(refusal, StartFailed) else str(refusal)
            self.history.engine_refused(told)
            raise RunStopped(f"the engine did not start again: {told}") from refusal
        self.history.engine_started()
        if self.engine.embedded:
            self.start_writers()
            self._start_readers()

    def restart(self) -> Endpoint:
        return self.engine.restart(self.engine_env or None)

    def kill_client(self, client: Client) -> None:
        """SIGKILL, in the middle of whatever it does; what it was asked has no outcome."""
        seat = self.seats[client.number]
        self._listener.remove(client)
        self._clients.kill(client)
        del self.seats[client.number]
        if seat.intent is not None:
            self.transcript.unknown(client.number, "the client was killed")

    def start_writers(self) -> None:
        """Brings the number of writers back to what the scenario wants."""
        self._start_seats(self._writers_wanted - len(self.writers), self.workload.plan, writer=True)

    def start_other_writers(self, spec: str, count: int) -> None:
        """Writers of another release, beside those that are there; without any of them there is no fault."""
        before = len(self.writers)
        self._start_seats(
            count, self.workload.plan, writer=True, spec=spec, python=self.scenario.previous_python
        )
        if len(self.writers) == before:
            self.give_up(f"the other release did not open: {self.notes.refusals[-1]}")

    def restart_clients(self) -> None:
        """Closes all clients and opens new ones, which see the endpoint as it is now."""
        self._close_seats()
        self.start_writers()
        self._start_readers()

    def clients_obey(self, clock: Clock) -> None:
        """The wall clock of the target's processes that are started from now on."""
        self._clients.clock = clock

    def drop_clients(self) -> None:
        """Kills all clients and opens new ones: after a failover nobody waits for the old primary."""
        self.kill_clients()
        self.start_writers()
        self._start_readers()

    def kill_clients(self) -> None:
        for seat in list(self.seats.values()):
            self.kill_client(seat.client)

    def guest(self) -> Seat:
        """A client without a plan of its own, for a fault to use with `do`."""
        client = self._clients.launch(self.scenario.target, self.shown(self.endpoint))
        self._clients.wait_ready(client)
        seat = self._seat(client, lambda planner: self._final_reads([]), writer=False)
        seat.ended = True
        return seat

    def dismiss(self, guest: Seat) -> None:
        """Ends a guest that is still there."""
        if guest.client.number in self.seats:
            self.kill_client(guest.client)

    def watch(self, seat: Seat, watch: pipe.Watch) -> None:
        """Tells a client to follow the lines of the store's code during its next write."""
        seat.client.send(watch)
        seat.client.receive()

    def do(self, seat: Seat, intent: Intent) -> pipe.Reply | None:
        """One operation by a guest, while the others go on; None if it did not survive it."""
        request = self.transcript.begin(seat.client.number, intent)
        seat.intent, seat.since, seat.last_reply = intent, time.monotonic(), None
        seat.client.send(request)
        while seat.intent is not None and seat.client.number in self.seats:
            if not self._hear(0.1):
                self._check_hangs()
            if self._at_line is not None and self.on_line is not None:
                stopped, self._at_line = self._at_line, None
                self.on_line(*stopped)
        return seat.last_reply

    def record_clients(self, env: Mapping[str, str] | None) -> None:
        """From the next client on, their own calls are recorded too: an embedded engine lives in them."""
        self._clients.recorded = env

    def give_up(self, reason: str) -> NoReturn:
        """Nothing can be concluded from this run."""
        raise RunStopped(reason)

    def skip(self, reason: str) -> NoReturn:
        """What the scenario asks for does not exist here, as only the running target or engine could tell."""
        raise RunSkipped(reason)

    def at_end(self, heal: Callable[[], None]) -> None:
        """Something to undo when the run ends, however it ends."""
        self._heal.append(heal)

    # ---- clients

    def _start_readers(self) -> None:
        present = len(self.seats) - len(self.writers)
        self._start_seats(self._readers_wanted - present, WORKLOADS["watch"].plan, writer=False)

    def _start_seats(
        self,
        count: int,
        plan: Callable[[Planner], Plan],
        *,
        writer: bool,
        spec: str | None = None,
        python: str | None = None,
    ) -> None:
        target, endpoint = spec or self.scenario.target, self.shown(self.endpoint)
        launched = [
            self._clients.launch(target, endpoint)
            if python is None
            else self._clients.launch_under(python, target, endpoint)
            for _ in range(max(0, count))
        ]
        for client in launched:
            try:
                self._clients.wait_ready(client)
            except TargetBroken as refusal:
                self.notes.refusals.append(str(refusal))
            else:
                self._seat(client, plan, writer=writer)

    def _seat(self, client: Client, plan: Callable[[Planner], Plan], *, writer: bool) -> Seat:
        sessions = self.workload.sessions or tuple(
            f"session-{number}" for number in range(self.scenario.sessions)
        )
        planner = Planner(
            client.number,
            random.Random(f"{self.scenario.seed}/{self.scenario.name}/{client.number}"),
            sessions,
            self.abilities,
            whole_reads=self.workload.unmarked,
        )
        seat = Seat(client, plan(planner), writer)
        self.seats[client.number] = seat
        self._listener.add(client)
        return seat

    def _close_seats(self) -> None:
        self.settle()
        clients = [seat.client for seat in self.seats.values()]
        for client in clients:
            self._listener.remove(client)
        if late := self._clients.close(*clients):
            self.notes.hangs.append(
                f"close() took longer than {CLOSE_TIMEOUT_S:g} s in {late} client(s): killed"
            )
        self.seats.clear()

    # ---- asking and hearing

    def _ask(self, seat: Seat) -> None:
        if self.scenario.ops_max is not None and seat.writer and seat.steps >= self.scenario.ops_max:
            seat.ended = True
            return
        retry = self.transcript.retry_of(seat.client.number)
        try:
            if retry is None:
                intent = next(seat.plan) if seat.last_outcome is None else seat.plan.send(seat.last_outcome)
                request = self.transcript.begin(seat.client.number, intent)
            else:
                intent, request = retry
        except StopIteration:
            seat.ended = True
            return
        seat.intent, seat.since, seat.steps = intent, time.monotonic(), seat.steps + 1
        self.operations += 1
        try:
            seat.client.send(request)
        except ClientDied as death:
            self._died(seat, str(death))

    def _hear(self, timeout_s: float) -> bool:
        heard = False
        for client in self._listener.wait(timeout_s):
            seat = self.seats.get(client.number)
            if seat is not None:
                self._take(seat)
                heard = True
        return heard

    def _take(self, seat: Seat) -> None:
        try:
            reply = seat.client.receive()
        except ClientDied as death:
            self._died(seat, str(death))
            return
        if isinstance(reply, pipe.AtLine):
            # Not here: what a fault does there hears the others, while we are in the middle of hearing them.
            self._at_line = (seat, reply.line)
            return
        assert seat.intent is not None
        seat.last_reply = reply
        seat.last_outcome = self.transcript.end(seat.client.number, seat.intent, reply)
        seat.intent = None

    def _drain(self) -> None:
        while self._hear(0.0):
            pass

    def _died(self, seat: Seat, how: str) -> None:
        if seat.intent is not None and seat.client.crashed and not seat.doomed and reads(seat.intent):
            # What it was asked to read brought it down: whoever asks gets no answer, and that is one.
            self.transcript.end(seat.client.number, seat.intent, pipe.Failed("fail", how))
            seat.intent = None
        self.kill_client(seat.client)
        if seat.doomed:
            return
        self.notes.deaths.append(how)
        if len(self.notes.deaths) > DEATHS_MAX:
            raise RunStopped(f"{how}, {len(self.notes.deaths)} times")
        if seat.writer:
            self.start_writers()

    def _check_hangs(self) -> None:
        for seat in list(self.seats.values()):
            if seat.intent is not None and time.monotonic() - seat.since > OPERATION_TIMEOUT_S:
                self._hung(seat)

    def _hung(self, seat: Seat) -> None:
        what = f"{CALLED[type(seat.intent)]} took longer than {OPERATION_TIMEOUT_S:g} s"
        self.notes.hangs.append(what)
        self.kill_client(seat.client)
        if seat.writer and len(self.notes.hangs) <= DEATHS_MAX:
            self.start_writers()
