"""Several processes, each a client with a store of its own; we choose whose request reaches the engine next.

Processes share nothing but the engine, so one choice is one request: it is released, the engine answers, the client
gets the answer and runs until it has its next request ready or its operation is done. An operation begins with its
first request, as late as it can, so that whatever was acknowledged before is known to have been.

A client that waits inside the engine for another's lock is found by asking the engine, and is left there. One that
keeps asking the same question and gets the same answer is waiting for somebody too, and is not let through again
before another has moved.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.explore.interleavings.dialogues import carried
from recollect.verify.explore.interleavings.engine_waits import (
    PATIENCE_S,
    EngineWaits,
    UnknownWaits,
    pick,
    settle,
)
from recollect.verify.explore.interleavings.footprints import ORDER, Footprint
from recollect.verify.explore.interleavings.gate import Gate, GatedLink
from recollect.verify.explore.interleavings.other_threads import is_asleep
from recollect.verify.explore.interleavings.outside import StepOption, StepOptions
from recollect.verify.explore.interleavings.program import NAMES, ClientsProgram, ProgramOp
from recollect.verify.explore.interleavings.schedule_history import BEFORE, operation
from recollect.verify.explore.interleavings.search import (
    Alternating,
    Diverged,
    Redundant,
    Replay,
    Strategy,
    started,
)
from recollect.verify.explore.interleavings.seats import ROUNDS_FREE, ROUNDS_MAX
from recollect.verify.explore.interleavings.statement_gate import gate_for
from recollect.verify.explore.interleavings.store_past import StorePast, StoreUse
from recollect.verify.explore.interleavings.world import (
    ChosenCourse,
    NewHistory,
    ScheduleRun,
    SessionNames,
    Stuck,
    Unfinished,
)
from recollect.verify.target import pipe
from recollect.verify.target.workers import START_TIMEOUT_S, Worker, Workers

SCHEDULES_PER_CLIENT = 200
CLIENTS_MIN = 2
"""How many are there from the beginning: most programs have so many."""
BUSY = "SQLITE_BUSY"
STEPS_MAX = 300
SLEEP_MAX_S = 10.0
"""A client that sends nothing for this long, and is not in the engine, is not waited for."""


@dataclass(eq=False)
class _GatedClient:
    """One client's process."""

    name: str
    number: int
    gate: Gate
    worker: Worker | None = None
    ops: tuple[ProgramOp, ...] = ()
    begun: int = 0
    work: Generator[pipe.Request, pipe.Reply, None] | None = None
    """The operation under way."""
    reply: pipe.Reply | None = None
    last: tuple[bytes, bytes] = (b"", b"")
    rounds: int = 0
    process: str = ""
    """Its number."""

    def begin_schedule(self, ops: tuple[ProgramOp, ...]) -> None:
        self.ops, self.begun, self.work, self.reply = ops, 0, None, None
        self.last, self.rounds = (b"", b""), 0


class ProcessWorld:
    """`waits` asks the engine who waits for whom."""

    unseen: str | None = None
    has_grown = False

    def __init__(
        self,
        spec: str,
        endpoint: Endpoint,
        new_history: NewHistory,
        workers: Workers,
        *,
        waits: EngineWaits | None = None,
    ) -> None:
        self._spec, self._endpoint, self._new_history = spec, endpoint, new_history
        self._workers, self._waits = workers, waits or UnknownWaits()
        self._selector = selectors.DefaultSelector()
        self.session = SessionNames("p")
        self._clients: list[_GatedClient] = []
        """As many as a program has needed so far; the last ones may have no part in the next."""
        self._past = StorePast()
        self._dirty = False
        self._touched: set[tuple[str, bool]] = set()

    @property
    def earlier(self) -> tuple[StoreUse, ...]:
        return self._past.before_latest

    def trust_no_more(self) -> None:
        self._past.trust_no_more()

    def open(self) -> None:
        self._launch_clients(CLIENTS_MIN)

    # ---- one schedule

    def run(self, program: ClientsProgram, strategy: Strategy, *, fresh: bool = False) -> ScheduleRun:
        alone, anew = self._past.begins(program, self._past_matters)
        if fresh or anew or self._dirty or len(self._past.uses) >= SCHEDULES_PER_CLIENT:
            self._close_clients()
        self._launch_clients(len(program.clients))
        if alone:
            self._warm(program)
        else:
            self._rehearse(program)
        try:
            return self._one(program, strategy)
        finally:
            self._past.ended(program, self._course.schedule)

    def _one(self, program: ClientsProgram, strategy: Strategy) -> ScheduleRun:
        self.session.schedule += 1
        self._course = ChosenCourse(strategy, self.session.shorten)
        self._history = self._new_history(program)
        for number, client in enumerate(self._clients):
            client.begin_schedule(program.clients[number] if number < len(program.clients) else ())
        self._dirty = True
        self._append_before(program.before)
        for _ in range(STEPS_MAX):
            options = self._enabled()
            if not options and not self._somebody_goes_on():
                break
            if options:
                self._step(options)
        else:
            self._run_out()
            raise Unfinished(f"more than {STEPS_MAX} steps")
        self._find_hangs()
        self._look_for_strangers()
        self._dirty = self._history.disturbed
        return self._course.run(self._history)

    def _step(self, options: list[StepOption]) -> None:
        try:
            index = self._course.choose([option.choice for option in options])
            self._touched = set()
            self._touched |= options[index].act()
            self._course.did(frozenset(self._touched))
        except (Redundant, Diverged):
            self._run_out()
            raise

    def _append_before(self, count: int) -> None:
        """Lets the first client append `count` messages before the schedule begins."""
        first = self._clients[0]
        for _ in range(count):
            first.work = operation(self._history, BEFORE, ProgramOp("a"), lambda kind, label: None)
            self._ask(first, next(first.work))
            self._advance(first)
            while first.work is not None:
                self._release(first, first.gate.ready[0])
        self._course.steps.clear()
        first.last, first.rounds = (b"", b""), 0

    def _run_out(self) -> None:
        """Lets everything that is under way end, so that the clients can be used again."""
        for _ in range(STEPS_MAX):
            busy = [(one, link) for one in self._clients if one.work is not None for link in one.gate.ready]
            if not busy:
                break
            self._release(*busy[0])
        self._dirty = any(client.work is not None for client in self._clients)

    def _find_hangs(self) -> None:
        for client in self._clients:
            if client.work is None:
                continue
            if not client.gate.is_in_engine:
                raise Unfinished(f"{client.name} sends nothing")
            self._history.hangs(client.number)
            self._course.note(client.name, "hang", "waits for ever")

    def _look_for_strangers(self) -> None:
        """A client that has done its part and never came to the gate goes another way."""
        if any(client.begun and not client.gate.connections for client in self._clients):
            self.unseen = "the store reaches the engine by a way that has no gate"

    # ---- what could happen next

    def _enabled(self) -> list[StepOption]:
        found = StepOptions()
        for client in self._clients:
            if client.work is not None:
                for place, link in enumerate(client.gate.ready):
                    if link.is_held_back:
                        continue
                    what = f"request:{client.begun}:{place}"
                    found.offer(client.name, what, partial(self._release, client, link))
            elif client.begun < len(client.ops):
                found.offer(client.name, f"begin:{client.begun}", partial(self._begin, client))
        waiting = {client.name for client in self._clients if client.rounds >= ROUNDS_FREE}
        others = [option for option in found if option.choice.actor not in waiting]
        return others or found

    def _somebody_goes_on(self) -> bool:
        """Nothing is left to choose: waits for the engine to end somebody's wait, or for a sleeping client to wake."""
        busy = [client for client in self._clients if client.work is not None]
        held_back = [link for client in busy for link in client.gate.ready if link.is_held_back]
        if held_back and len(held_back) >= len(busy):
            return self._end_a_wait()
        end = time.monotonic() + SLEEP_MAX_S
        while busy and time.monotonic() < end:
            for client in busy:
                for link in client.gate.links:
                    if link.in_engine and link.hear():
                        self._course.note(client.name, "unblocked", "")
                        self._answered(client, link)
                        return True
            if all(client.gate.is_in_engine for client in busy):
                end = min(end, time.monotonic() + 1.0)  # a timeout of the engine's own
            self._hear_all(0.02)
            if any(client.gate.ready or client.reply is not None for client in busy):
                for client in busy:
                    self._advance(client)
                return True
        return False

    def _end_a_wait(self) -> bool:
        """Everybody waits for somebody else's lock: the first who could ask has waited long enough."""
        for client in self._clients:
            for link in client.gate.ready:
                if link.is_held_back:
                    link.stop()
                    settle([link], self._waits)
                    self._course.note(client.name, "unblocked", "")
                    self._hold_no_longer(client)
                    self._answered(client, link)
                    return True
        return False

    # ---- steps

    def _begin(self, client: _GatedClient) -> Footprint:
        op = client.ops[client.begun]
        client.begun += 1
        client.work = operation(self._history, client.number, op, partial(self._note, client))
        self._ask(client, next(client.work))
        self._advance(client)
        touched: Footprint = frozenset({(ORDER, False)})
        if client.work is not None and client.gate.ready:
            touched |= self._release(client, client.gate.ready[0])
        return touched

    def _note(self, client: _GatedClient, kind: str, label: str) -> None:
        self._touched.add((ORDER, kind == "end"))
        self._course.note(client.name, kind, label)

    def _ask(self, client: _GatedClient, request: pipe.Request) -> None:
        assert client.worker is not None
        assert not isinstance(request, pipe.Watch | pipe.Close)
        request.session = self.session(self.session.number(request.session))
        client.worker.send(request)

    def _release(self, client: _GatedClient, link: GatedLink) -> Footprint:
        waited = self._in_engine()
        request = link.send()
        links = [one for _, one in waited] + [link]
        answered = settle(links, self._waits, newest=link)
        told = carried(link.asked, bytes(link.answer), request.footprint)
        self._course.note(client.name, "arrive", request.label, told)
        if link.in_engine or link.is_held_back:
            self._course.note(client.name, "blocked", request.label)
        else:
            self._look_for_rounds(client, link)
            if request.releases:
                self._hold_no_longer(client)
        touched = request.footprint
        for other, waiting in waited:
            if waiting in answered and waiting.request is not None:
                self._course.note(other.name, "unblocked", "")
                touched |= waiting.request.footprint
        owned = [(other.name, one) for other, one in [*waited, (client, link)] if one in answered]
        picked = pick([(other.name, one) for other, one in waited], owned)
        for other, one in [*waited, (client, link)]:
            if one in answered:
                self._answered(other, one)
        self._course.picked(picked)
        return touched

    def _hold_no_longer(self, mover: _GatedClient) -> None:
        for client in self._clients:
            for link in client.gate.links if client is not mover else ():
                link.is_held_back = False

    def _in_engine(self) -> list[tuple[_GatedClient, GatedLink]]:
        return [(client, link) for client in self._clients for link in client.gate.links if link.in_engine]

    def _look_for_rounds(self, client: _GatedClient, link: GatedLink) -> None:
        now = (link.asked, bytes(link.answer))
        same = now == client.last
        client.rounds, client.last = (client.rounds + 1 if same else 0), now
        if link.dialogue.error == BUSY:  # it will ask again, and may as well wait until somebody has moved
            client.rounds = max(client.rounds, ROUNDS_FREE)
        if not same:
            for other in self._clients:
                if other is not client:
                    other.rounds = 0
        if client.rounds > ROUNDS_MAX:
            raise Unfinished(f"{client.name} asks the same question over and over")

    def _answered(self, client: _GatedClient, link: GatedLink) -> None:
        link.forward()
        self._advance(client)

    def _advance(self, client: _GatedClient) -> None:
        """Lets the client run until it has a request ready or its operation is done."""
        end = time.monotonic() + PATIENCE_S
        while client.work is not None and time.monotonic() < end:
            if client.reply is not None:
                self._end(client)
                continue
            ready = client.gate.ready
            setup = next((link for link in ready if link.is_setup), None)
            if setup is not None:
                setup.send()
                if settle([setup], self._waits):
                    setup.forward()
            elif client.gate.is_in_engine:
                return
            elif not ready:
                self._hear(0.02)
            elif is_asleep(client.process):
                return  # it has nothing more to send
            else:
                os.sched_yield()  # it has more to do, and may need this core for it
                self._hear(0.0)

    def _end(self, client: _GatedClient) -> None:
        assert client.work is not None
        reply, client.reply = client.reply, None
        try:
            self._ask(client, client.work.send(cast(pipe.Reply, reply)))
        except StopIteration:
            client.work = None
            self._hold_no_longer(client)  # it may have closed a connection, with its lock

    def _hear_all(self, timeout_s: float) -> None:
        """Waits for the engine's answers too, which are left where they are."""
        asked: list[Any] = [link for client in self._clients for link in client.gate.links if link.in_engine]
        select.select([*asked, self._selector], (), (), timeout_s)
        self._hear(0.0)

    def _hear(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if isinstance(key.data, _GatedClient):
                assert key.data.worker is not None
                key.data.reply = key.data.worker.receive()
            else:
                gate: Gate = key.data
                gate.hear(key.fileobj)  # type: ignore[arg-type]

    # ---- clients

    def _past_matters(self, program: ClientsProgram) -> bool:
        """Whether stores that have been used once go another way: then each schedule gets new clients. The first run is
        for the engine, where scripts stay; the second is on new stores, the third on the same ones."""
        courses: list[ScheduleRun] = []
        for place in range(3):
            if self._dirty or place == 1:
                self._close_clients()
            self._launch_clients(len(program.clients))
            self._warm(program)
            with contextlib.suppress(Unfinished):
                courses.append(self._one(program, started(Replay(""))))
        return self._dirty or len(courses) < 3 or not courses[1].went_like(courses[2])

    def _warm(self, program: ClientsProgram) -> None:
        """Lets each client of new stores read, which opens its connection and changes nothing."""
        if self._past.clients_max < len(program.clients):
            with contextlib.suppress(Unfinished):
                self._one(program.reading, started(Alternating(1)))
            self._past.clients_max = len(program.clients)

    def _rehearse(self, program: ClientsProgram) -> None:
        """Runs a program in which something new meets a few times first, which the engine remembers (scripts); and any
        on stores that have not done what it does, or for fewer clients."""
        if self._past.has_done(program):
            return
        rehearsals: tuple[Strategy, ...] = (Alternating(1), Alternating(-1), Replay(""))
        for number, rehearsal in enumerate(rehearsals):
            if (program, number) in self._past.spoiling:
                continue
            with contextlib.suppress(Unfinished):
                self._one(program, started(rehearsal))
            if self._dirty:  # a damaged store would show nothing: better a cold one
                self._past.spoiling.add((program, number))
                self._close_clients()
                self._launch_clients(len(program.clients))
        self._past.did(program)

    def _launch_clients(self, count: int) -> None:
        """Sees to it that so many clients are there."""
        for number in range(len(self._clients), count):
            self._clients.append(
                _GatedClient(NAMES[number], number, gate_for(self._endpoint, self._selector))
            )
        new = [client for client in self._clients[:count] if client.worker is None]
        for client in new:
            client.gate.connections = 0
            client.worker = self._workers.launch(
                self._spec, client.gate.shown, environment=client.gate.environment
            )
            client.process = str(client.worker.pid)
        for client in new:
            self._let_open(client)

    def _let_open(self, client: _GatedClient) -> None:
        """Everything passes until the client's store is open."""
        assert client.worker is not None
        self._selector.register(client.worker.connection.fileno(), selectors.EVENT_READ, client)
        end = time.monotonic() + START_TIMEOUT_S
        while client.reply is None:
            self._hear_all(0.05)
            for one in self._clients:
                for link in one.gate.links:
                    if link.is_ready:
                        link.send()
                    # Another client that opens may have the lock: it is not waited for here.
                    if link.in_engine and link.hear():
                        link.forward()
            if time.monotonic() > end:
                raise Stuck(f"{self._spec} did not open behind the gate within {START_TIMEOUT_S:g} s")
        if isinstance(client.reply, pipe.Broken):
            raise Stuck(client.reply.reason)
        client.reply = None

    def _close_clients(self) -> None:
        for client in self._clients:
            client.gate.drop_links()
            if client.worker is not None:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(client.worker.connection.fileno())
                self._workers.kill(client.worker)
                client.worker = None
            client.reply = client.work = None
        self._dirty = False
        self._past.opened()

    def close(self) -> None:
        self._close_clients()
        for client in self._clients:
            client.gate.close()
        self._clients.clear()
        self._selector.close()
