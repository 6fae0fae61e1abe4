"""The clients of one run: which of them are at work, how they start, and how they end.

A client is a worker process with a plan, or one of several callers that share a process and its store. Writers and
readers that are gone are replaced, up to the numbers the run wants; a guest has no plan of its own and does single
operations for a fault.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recollect.verify.clock import Clock
from recollect.verify.engines import Endpoint
from recollect.verify.judging.evidence import NOT_A_DISTURBANCE
from recollect.verify.running.notes import Notes, RunSkipped, RunStopped
from recollect.verify.running.scenario import Scenario
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.workloads import WORKLOADS, Filling, Intent, Plan, Planner
from recollect.verify.target import pipe
from recollect.verify.target.about import session_about
from recollect.verify.target.outcomes import Outcome
from recollect.verify.target.workers import (
    CLOSE_TIMEOUT_S,
    Listener,
    TargetBroken,
    Worker,
    WorkerDied,
    Workers,
)


@dataclass
class Client:
    """A client at work: its process, its plan, and what it is waiting for."""

    worker: Worker
    plan: Plan
    writer: bool
    intent: Intent | None = None
    """What it was asked to do and has not answered yet."""
    since: float = 0.0
    last_outcome: Outcome | None = None
    last_reply: pipe.Reply | None = None
    steps: int = 0
    ended: bool = False
    """It is asked nothing more, or only by a fault."""
    doomed: bool = False
    """A fault has told it to die, so its death needs no explanation."""
    at_line: str | None = None
    """The line of the store's code at which it has stopped and waits."""

    @property
    def number(self) -> int:
        """The number of its process in the history."""
        return self.worker.number


class Clients:
    """All clients of one run. What faults use of it is described in `faults.faulted_run`."""

    def __init__(
        self, scenario: Scenario, log: Path, preload: tuple[str, ...], notes: Notes, callers: int = 1
    ) -> None:
        """`callers` is how many writers share one process and its store."""
        self.endpoint: Endpoint
        """Where the engine answers. Clients see it as changed by `show`."""
        self.abilities: frozenset[str] = frozenset()
        self._scenario = scenario
        self._workload = WORKLOADS[scenario.workload]
        self._sessions = self._workload.sessions or tuple(f"session-{n}" for n in range(scenario.sessions))
        self._filling = Filling(self._sessions, scenario.filled)
        self._notes = notes
        self._workers = Workers(log, preload)
        self._workers.form = scenario.form
        self._listener = Listener()
        self._at_work: dict[int, Client] = {}
        self._owners: dict[str, int] = {}
        """The writer of each session, when no session is shared."""
        self._changes: list[Callable[[Endpoint], Endpoint]] = []
        self._transcript: Transcript
        self._callers = max(1, min(callers, scenario.writers))
        self.is_async = False
        """The target's methods are coroutines, so a caller can cancel them."""
        self.impatience: random.Random | None = None
        """The dice callers throw to decide whether to give up; None: they always wait."""
        self.given_up = 0
        """Operations whose caller gave up."""
        self._writers_wanted = self._readers_wanted = 0
        self._one_process = False
        """The target claims no more than that one process at a time has its data open."""

    # ---- who is there

    @property
    def present(self) -> list[Client]:
        return list(self._at_work.values())

    @property
    def writers(self) -> list[Client]:
        return [client for client in self._at_work.values() if client.writer]

    def __contains__(self, client: Client) -> bool:
        return client.number in self._at_work

    def speaking(self, timeout_s: float) -> Iterator[Client]:
        """Those that have something to say, or are gone; waits for the first."""
        for worker in self._listener.wait(timeout_s):
            if (client := self._at_work.get(worker.number)) is not None:
                yield client

    def number(self) -> int:
        """A process number for asking the engine directly."""
        return self._workers.number()

    @property
    def missing(self) -> int:
        """Messages that sessions lack before the fault may strike."""
        return self._filling.missing

    # ---- how the next ones are started

    def show(self, change: Callable[[Endpoint], Endpoint]) -> None:
        self._changes.append(change)

    def obey(self, clock: Clock) -> None:
        self._workers.clock = clock

    def record(self, env: Mapping[str, str] | None) -> None:
        self._workers.recorded = env

    def hold_tables(self, hold_s: float) -> None:
        for client in self.present:
            with suppress(WorkerDied):  # whoever waits for its answer will notice
                client.worker.send(pipe.HoldTables(time.monotonic() + hold_s))

    # ---- coming

    def open_first(self) -> tuple[Worker, pipe.Ready]:
        """The first worker prepares the engine for the target, and says what the target can do."""
        worker = self._workers.launch(
            self._scenario.target, self._shown(), prepare=True, callers=self._callers
        )
        ready = self._workers.wait_ready(worker)
        ready.settings = self._workers.settings(self._scenario.target, self._shown(), ready)
        self.abilities = frozenset(ready.abilities)
        self.is_async = ready.is_async
        return worker, ready

    def begin(
        self, first: Worker, transcript: Transcript, *, writers: int, readers: int, one_process: bool = False
    ) -> None:
        """Puts the first worker to work and starts the others; with `one_process`, only those that share its own."""
        self._transcript = transcript
        self._one_process = one_process
        if one_process:
            writers, readers = min(writers, self._callers), 0
        self._writers_wanted, self._readers_wanted = writers, readers
        self._join(first, self._workload.plan, writer=True)
        self._admit_beside(first, writers - 1)
        self.start_missing()

    def _admit_beside(self, first: Worker, count: int) -> None:
        """Admits the other callers of its process; those not needed are closed."""
        for worker in first.beside[count:]:
            worker.connection.close()
        for worker in first.beside[:count]:
            try:
                self.admit(worker, self._workload.plan, writer=True)
            except TargetBroken as bound:
                raise RunSkipped(str(bound)) from None

    def start_missing(self) -> None:
        self.start_writers()
        readers = len(self._at_work) - len(self.writers)
        self._start(self._readers_wanted - readers, WORKLOADS["watch"].plan, writer=False)

    def start_writers(self) -> None:
        self._start(self._writers_wanted - len(self.writers), self._workload.plan, writer=True)

    def start_others(self, spec: str, count: int) -> None:
        self._refuse_another_process()
        before = len(self.writers)
        python = self._scenario.previous_python
        self._start(count, self._workload.plan, writer=True, spec=spec, python=python)
        if len(self.writers) == before:
            raise RunStopped(f"the other release did not open: {self._notes.refusals[-1]}")

    def guest(self) -> Client:
        self._refuse_another_process()
        guest = self.admit(self.launch(), lambda planner: _no_plan())
        guest.ended = True
        return guest

    def launch(self) -> Worker:
        """Starts a fresh worker; `admit` waits until it is ready."""
        return self._workers.launch(self._scenario.target, self._shown())

    def admit(self, worker: Worker, plan: Callable[[Planner], Plan], *, writer: bool = False) -> Client:
        self._workers.wait_ready(worker)
        return self._join(worker, plan, writer=writer)

    def _shown(self) -> Endpoint:
        shown = self.endpoint
        for change in self._changes:
            shown = change(shown)
        return shown

    def _start(
        self,
        count: int,
        plan: Callable[[Planner], Plan],
        *,
        writer: bool,
        spec: str | None = None,
        python: str | None = None,
    ) -> None:
        target, endpoint = spec or self._scenario.target, self._shown()
        each = self._callers if writer and spec is None else 1
        launched = [
            self._workers.launch(target, endpoint, callers=min(each, count - place))
            if python is None
            else self._workers.launch_under(python, target, endpoint)
            for place in range(0, max(0, count), each)
        ]
        for worker in launched:
            try:
                self.admit(worker, plan, writer=writer)
            except TargetBroken as refusal:
                self._notes.refusals.append(str(refusal))
            else:
                self._admit_beside(worker, each - 1)

    def _join(self, worker: Worker, plan: Callable[[Planner], Plan], *, writer: bool) -> Client:
        seed = f"{self._scenario.seed}/{self._scenario.name}/{worker.number}"
        planner = Planner(
            worker.number,
            random.Random(seed),
            self._own(worker.number) if writer and self._scenario.apart else self._sessions,
            self.abilities,
            whole_reads=self._workload.unmarked,
            writers=max(1, self._writers_wanted),
            undisturbed=self._scenario.fault in NOT_A_DISTURBANCE,
        )
        begun = self._filling.plan(planner, plan) if writer and self._filling.missing else plan(planner)
        client = self._at_work[worker.number] = Client(worker, begun, writer)
        self._listener.add(worker)
        return client

    def searches(self, session: str) -> bool:
        """Whether at the end it is looked for what the session lists: always if the target has an index, and by their
        ids where that was the workload."""
        finds = "find" in self.abilities and self._scenario.workload == "changes"
        return "search" in self.abilities or (finds and session_about(session) is None)

    def _own(self, number: int) -> tuple[str, ...]:
        """Sessions nobody else writes to: a share of those whose writer is gone, or a new one."""
        free = [session for session in self._sessions if self._owners.get(session) not in self._at_work]
        mine = free[: max(1, len(self._sessions) // max(1, self._writers_wanted))] or [f"session-of-{number}"]
        self._owners.update(dict.fromkeys(mine, number))
        return tuple(mine)

    # ---- going

    def kill(self, client: Client) -> None:
        """Kills its process, and so the other callers in it."""
        for one in [one for one in self.present if one.worker.shares(client.worker)]:
            self._listener.remove(one.worker)
            self._workers.kill(one.worker)
            del self._at_work[one.number]
            if one.intent is not None:
                self._transcript.unknown(one.number, "the client was killed")

    def kill_all(self) -> None:
        for client in self.present:
            self.kill(client)

    def dismiss(self, guest: Client) -> bool:
        present = guest in self
        if present:
            self.kill(guest)
        return present

    def leave(self) -> None:
        """Lets all of them close their stores and end, at the same time. Nothing may be under way."""
        workers = [client.worker for client in self._at_work.values()]
        for worker in workers:
            self._listener.remove(worker)
        if late := self._workers.close(*workers):
            told = f"close() took longer than {CLOSE_TIMEOUT_S:g} s in {late} client(s): killed"
            self._notes.hangs.append(told)
        self._at_work.clear()

    def make_room(self) -> None:
        """Before another process reads everything: if only one may have the data open, the others end first."""
        if self._one_process:
            self.leave()

    def _refuse_another_process(self) -> None:
        if self._one_process:
            raise RunSkipped(
                "it takes two processes at once, and the target claims one at a time (one_process)"
            )

    def close(self) -> None:
        """The run is over."""
        try:
            self._workers.close_all()
        finally:
            self._listener.close()


def _no_plan() -> Plan:
    yield from ()
