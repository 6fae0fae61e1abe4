"""What is outside a process of tasks: connections, threads and time, each step of which is chosen.

The event loop hands `Outside` whatever it would have left to the operating system. `offer` says what could happen there
now; choosing an option makes it happen.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from recollect.verify.explore.interleavings.dialogues import carried, dialogue
from recollect.verify.explore.interleavings.engine_waits import EngineWaits, UnknownWaits, pick, settle
from recollect.verify.explore.interleavings.footprints import (
    MEMORY,
    NOTHING,
    TIME,
    TURN,
    WRITES_ALL,
    Footprint,
    of_operations,
)
from recollect.verify.explore.interleavings.held_connection import (
    ACTOR,
    RUNNING,
    HeldConnection,
    Segment,
    real_clock,
)
from recollect.verify.explore.interleavings.other_threads import (
    NAP_S,
    Naps,
    all_asleep,
    await_idle,
    others_run,
    sleep,
)
from recollect.verify.explore.interleavings.search import Choice
from recollect.verify.explore.interleavings.sight import SocketWatch
from recollect.verify.explore.interleavings.stepped_loop import SteppedLoop, ThreadJob

SLEEP_MAX_S = 1.0
"""Longer timers go off only when nothing else can happen."""
TIMEOUTS_S = 0.3
"""How long the engine gets to end a wait itself, if nothing else can happen."""
JOB_POLL_S = 0.02
JOB_CALM = 10
"""How many times in a row every thread must be seen asleep before a job counts as waiting for somebody. Until then it
is only slow, as on a machine with other work: time does not go on, and nobody else moves."""
JOB_S_MAX = 30.0
BEGINNING_S = 1000.0

BETWEEN_S = 0.01
"""Between two schedules, so that what a store does every so often by the clock, it does anew in each."""
_REAL = (time.monotonic, time.perf_counter)


@dataclass(slots=True)
class StepOption:
    """Something that could happen now."""

    choice: Choice
    act: Callable[[], Footprint]
    is_timer: bool = False
    setup: bool = False
    """It affects nobody else, so it happens at once."""
    in_engine: bool = False
    """Only the engine does something: no code of the process runs."""


@dataclass(eq=False)
class _LetOthersGo:
    """A task that has let others go first."""

    handle: asyncio.Handle
    actor: str
    operation: str
    moved: set[str] = field(default_factory=set)
    """Who has come first: whatever comes of that comes after this turn."""


_IN_ONE_TURN = {"turn", "begin", "deliver", "done", "cancel", "cancel+"}
"""Kinds of steps in which code of the process runs."""


class StepOptions(list[StepOption]):
    """What could happen now; each code and each key occurs once."""

    def __init__(self, *, alone: bool = False) -> None:
        super().__init__()
        self._alone = alone
        self._names: set[str] = set()
        """Codes and keys, which are never the same: a key has a colon."""

    def offer(
        self,
        actor: str,
        what: str,
        act: Callable[[], Footprint],
        *,
        mark: str = "",
        setup: bool = False,
        is_timer: bool = False,
        in_engine: bool = False,
        is_mirrored: bool = False,
    ) -> None:
        names, number = self._names, 1
        key, code = f"{actor}:{what}", actor + mark
        while code in names:
            number += 1
            code = f"{actor}{number}{mark}"
        while key in names:
            key += "'"
        names.add(code)
        names.add(key)
        self.append(
            StepOption(Choice(actor, code, key, self._alone, is_mirrored), act, is_timer, setup, in_engine)
        )


class Audience(Protocol):
    """Who wants to know what happens outside."""

    def quiescent(self) -> None:
        """Nothing is left to run: makes one thing happen."""
        ...

    def note(self, actor: str, kind: str, label: str, told: str = "") -> None: ...

    @property
    def chooses(self) -> bool:
        """Whether anything is chosen now, and does not just happen."""
        ...

    def answered(self, asked: Segment) -> None:
        """The engine has answered a request."""
        ...

    def picked(self, who: str) -> None:
        """The engine has let these go on, of several who waited; empty if it had no choice."""
        ...


class Outside:
    """`engine` names the protocol that the connections speak; `waits` asks it who waits for whom."""

    def __init__(self, engine: str, audience: Audience, waits: EngineWaits | None = None) -> None:
        self._engine, self._audience, self._waits = engine, audience, waits or UnknownWaits()
        self.loop: SteppedLoop
        self.now = BEGINNING_S
        self._jobs_since = real_clock()
        self.moment = 0
        """Numbers the steps: what is written in one of them is one request."""
        self.jobs: list[ThreadJob] = []
        self.from_threads: list[asyncio.Handle] = []
        self.pool = concurrent.futures.ThreadPoolExecutor(8, "recollect-jobs")
        self.unseen: str | None = None
        self.given_up: set[str] = set()
        """Operations whose callers have given up in this schedule."""
        self.connections: list[HeldConnection] = []
        self._connections_made = 0
        self._places: dict[str, dict[int, int]] = {}
        self._timers_fired: Counter[str] = Counter()
        """How many timers of each client have gone off in this schedule."""
        self._turns: list[_LetOthersGo] = []
        self._turns_taken: Counter[str] = Counter()
        self._turns_changed = 0
        """How often a task has let others go first, or has gone on after that."""
        self._looked_at = 0, 0
        self._sockets = SocketWatch()
        self._naps = Naps()

    @property
    def now_in_threads(self) -> float:
        """The same clock, except that it runs on during a job: a deadline that a task gives to a thread still holds."""
        return self.now + real_clock() - self._jobs_since

    def open_loop(self) -> SteppedLoop:
        """A loop for a new store, with nothing left of the last one."""
        self.now = BEGINNING_S
        self.connections, self.jobs, self.from_threads, self._turns = [], [], [], []
        self._sockets.begin()
        self.loop = loop = SteppedLoop(self)
        self._sockets.ours()
        return loop

    def close_loop(self, loop: SteppedLoop) -> None:
        for connection in self.connections:
            connection.end()
        loop.close()

    def begin_schedule(self) -> None:
        self.connections = self.open_connections
        self._places = {}
        self.given_up = set()
        self._timers_fired.clear()
        self._turns_taken.clear()
        self.now += BETWEEN_S

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way on any connection or in any thread."""
        return not (self.jobs or self.from_threads or self._turns) and all(
            one.is_at_rest for one in self.open_connections
        )

    @property
    def open_connections(self) -> list[HeldConnection]:
        return [connection for connection in self.connections if not connection.gone]

    @contextlib.contextmanager
    def entered(self, loop: SteppedLoop) -> Iterator[None]:
        """The loop is the thread's own, and the clocks are the loop's."""
        asyncio.set_event_loop(loop)
        me = threading.get_ident()
        time.monotonic = time.perf_counter = lambda: (
            self.now if threading.get_ident() == me else self.now_in_threads
        )
        try:
            yield
        finally:
            time.monotonic, time.perf_counter = _REAL
            asyncio.set_event_loop(None)

    async def hang_up(self, count: int) -> None:
        """Ends the newest connections, as an engine may."""
        for connection in self.open_connections[-count:]:
            connection.hang_up()
        await asyncio.sleep(0)

    def look_for_strangers(self) -> None:
        if self._sockets.strangers(connection.socket for connection in self.connections):
            self.out_of_sight("a driver has connections of its own")

    # ---- what the loop calls

    def quiescent(self) -> None:
        self._audience.quiescent()

    def yields(self, handle: asyncio.Handle) -> bool:
        context = _context_of(handle)
        actor = context.get(ACTOR, "*")
        if not self._audience.chooses or actor == "*":
            return False
        self._turns_changed += 1
        self._turns.append(_LetOthersGo(handle, actor, context.get(RUNNING, "*")))
        return True

    def connect(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, protocol: Any
    ) -> asyncio.Transport:
        self._connections_made += 1
        made = HeldConnection(
            sock,
            protocol,
            dialogue(self._engine),
            number=self._connections_made,
            loop=loop,
            moment=lambda: self.moment,
        )
        self.connections.append(made)
        return made

    def out_of_sight(self, what: str) -> None:
        self.unseen = self.unseen or what

    # ---- what could happen next

    def offer(self, options: StepOptions) -> None:
        # Not in the order of the connections: which of two equal ones a task gets depends on who had it before.
        for one in self.waiting_connections:
            if one.out and not one.gone and not one.in_engine:
                owner, request = one.out[0].owner, one.next_request
                what = f"arrive:{self.place(owner, one)}"
                arrive = partial(self._arrive, one)
                options.offer(owner, what, arrive, setup=request.setup, in_engine=True)
            if one.answers:
                answer = one.answers[0]
                setup = answer.request is not None and answer.request.setup
                what = f"deliver:{self.place(answer.owner, one)}"
                options.offer(answer.owner, what, partial(self.deliver, one), setup=setup)
        for job in self.jobs:
            if job.running is None:
                options.offer(job.actor, f"job:{job.number}", partial(self._start, job), setup=job.setup)
            elif job.running.done():
                options.offer(job.actor, f"done:{job.number}", partial(self._finish, job), setup=job.setup)
        for turn in self._turns[:1]:
            what = f"turn:{self._turns_taken[turn.actor]}"
            options.offer(turn.actor, what, partial(self._take_turn, turn))
        for handle in self.from_threads:
            options.offer(_who_waits(handle), "hear", partial(self._hear, handle))

    def offer_timer(self, loop: SteppedLoop, options: StepOptions) -> None:
        timer = loop.next_timer()
        if timer is not None and (timer.when() - self.now <= SLEEP_MAX_S or not options):
            context = _context_of(timer)
            actor = context.get(ACTOR, "*")
            act = partial(self._wait_until, timer.when(), actor, context.get(RUNNING, "*"))
            options.offer(actor, f"timer:{self._timers_fired[actor]}", act, is_timer=True)

    def in_this_turn(self, options: list[StepOption]) -> list[StepOption]:
        """A task that lets others go first goes on as soon as each has."""
        if not self._turns:
            return options
        moved = self._turns[0].moved
        return [
            option
            for option in options
            if option.setup
            or option.in_engine
            or (option.choice.key.split(":")[1] in _IN_ONE_TURN and option.choice.actor not in moved)
        ]

    def moves(self, chosen: StepOption) -> None:
        """If code of the process runs for its client, that one has come first."""
        for turn in self._turns:
            if turn.actor != chosen.choice.actor and not chosen.in_engine:
                turn.moved.add(chosen.choice.actor)

    def time_and_turns(self) -> Footprint:
        """What has been touched of them since this was asked last."""
        timers, turns = self._looked_at
        self._looked_at = self.loop.timers_set, self._turns_changed
        touched = frozenset({(TURN, turns != self._turns_changed)})
        return touched | {(TIME, False)} if timers != self.loop.timers_set else touched

    @property
    def waiting_connections(self) -> list[HeldConnection]:
        """Those with a request or a reply that waits to be chosen, the oldest first."""
        waiting = [one for one in self.connections if one.out or one.answers]
        if len(waiting) > 1:
            waiting.sort(key=_oldest)
        return waiting

    def others_asked(self, own: Collection[str]) -> bool:
        """Whether, in this step, something was asked for other operations than these, or where others wait."""
        asked = (one for one in self.connections if any(part.moment == self.moment for part in one.out))
        return any(not one.operations.issubset(own) for one in asked)

    def place(self, actor: str, connection: HeldConnection) -> int:
        """The connection's number in the order in which the client used them: nobody can tell two equal ones apart."""
        places = self._places.setdefault(actor, {})
        return places.setdefault(connection.number, len(places))

    # ---- making it happen

    def _arrive(self, connection: HeldConnection) -> Footprint:
        waited = self._in_engine
        asked = connection.arrive()
        answered = settle(self._in_engine, self._waits, newest=connection)
        request = asked.request
        assert request is not None
        told = carried(bytes(asked.data), asked.reply, request.footprint)
        self._audience.note(asked.owner, "setup" if request.setup else "arrive", request.label, told)
        touched = request.footprint
        for other in waited:
            if other in answered and other.request is not None:
                self._audience.note(other.owner, "unblocked", "")
                touched |= other.request.footprint
        if connection.in_engine or asked.is_behind:
            # Whether it waits, or only stands behind another, its caller can still tell when it came.
            touched |= of_operations(asked.operations)
        if connection.in_engine:
            self._audience.note(asked.owner, "blocked", request.label)
        elif not request.setup:
            self._audience.answered(asked)
        self._audience.picked(pick([(c.owner, c) for c in waited], [(c.owner, c) for c in answered]))
        return touched

    @property
    def _in_engine(self) -> list[HeldConnection]:
        return [one for one in self.connections if one.in_engine and not one.gone]

    def deliver(self, connection: HeldConnection) -> Footprint:
        request = connection.answers[0].request
        if request is None or not request.setup:
            self._audience.note(connection.answers[0].owner, "deliver", request.label if request else "")
        running = connection.answers[0].operations
        touched = of_operations(running)
        if running & self.given_up:
            # Whoever takes the connection next may find what he asked for, or that it is gone.
            touched |= of_operations(connection.operations) | {(MEMORY, True)}
        connection.deliver()
        return touched

    def _start(self, job: ThreadJob) -> Footprint:
        if job.future.cancelled():
            self.jobs.remove(job)
            return NOTHING
        if not job.setup:
            self._audience.note(job.actor, "arrive", job.name)
        self._jobs_since = real_clock()
        job.running = job.submit()
        self.job_ends()
        return of_operations({job.operation}) | (NOTHING if job.setup else WRITES_ALL)

    def _finish(self, job: ThreadJob) -> Footprint:
        self.jobs.remove(job)
        if not job.setup:
            self._audience.note(job.actor, "deliver", job.name)
        assert job.running is not None
        if not job.future.cancelled():
            error = job.running.exception()
            if error is not None:
                job.future.set_exception(error)
            else:
                job.future.set_result(job.running.result())
        return of_operations({job.operation})

    def _wait_until(self, when: float, actor: str, operation: str) -> Footprint:
        self._audience.note(actor, "timer", f"{when - self.now:.3f} s pass")
        self.now = max(self.now, when)
        self._timers_fired[actor] += 1
        return of_operations({operation}) | {(TIME, True)}

    def _take_turn(self, turn: _LetOthersGo) -> Footprint:
        self._turns.remove(turn)
        self._turns_taken[turn.actor] += 1
        self._turns_changed += 1
        loop = turn.handle._loop  # type: ignore[attr-defined]
        assert isinstance(loop, SteppedLoop)
        loop.run_handle(turn.handle)
        return of_operations({turn.operation})

    def _hear(self, handle: asyncio.Handle) -> Footprint:
        self.from_threads.remove(handle)
        self._audience.note(_who_waits(handle), "deliver", "a thread's result")
        loop = handle._loop  # type: ignore[attr-defined]
        assert isinstance(loop, SteppedLoop)
        loop.run_handle(handle)
        return WRITES_ALL

    # ---- waiting for others

    def settle(self) -> None:
        """Waits until the other threads of the process wait, too."""
        if not self.jobs and threading.active_count() == 1:
            return
        under_way = [job.running for job in self.jobs if job.running is not None and not job.running.done()]
        for job in under_way:
            concurrent.futures.wait([job], timeout=0.05)
        others = others_run(self.pool)
        if others:
            await_idle()
        if others or not all(job.done() for job in under_way):
            self._naps.await_looks()

    def engine_answers(self) -> bool:
        """Waits for requests that wait in the engine, before time goes on: the engine may have a timeout of its own."""
        waiting = self._in_engine
        end = real_clock() + (TIMEOUTS_S if waiting else 0)
        while waiting and real_clock() < end:
            sleep(0.005)
            if [connection for connection in waiting if connection.hear()]:
                return True
        return False

    def job_ends(self) -> bool:
        """Waits for a job that is under way, as long as its thread has something to do."""
        running = [job.running for job in self.jobs if job.running is not None and not job.running.done()]
        end, calm = real_clock() + JOB_S_MAX, 0
        while running and calm < JOB_CALM and real_clock() < end:
            if concurrent.futures.wait(running, JOB_POLL_S, concurrent.futures.FIRST_COMPLETED).done:
                return True
            calm = calm + 1 if all_asleep() else 0
        return False

    def comes_from_threads(self, patience_s: float) -> bool:
        """Waits for a job that is under way."""
        running = [job.running for job in self.jobs if job.running is not None]
        first = concurrent.futures.FIRST_COMPLETED
        return bool(running and concurrent.futures.wait(running, patience_s, first).done)

    def driver_answers(self, patience_s: float = NAP_S) -> bool:
        """Waits for threads that a driver has started. One that waits for SQLite's lock is asleep, and looks again."""
        end = real_clock() + patience_s
        while not self.from_threads and others_run(self.pool) and real_clock() < end:
            sleep(JOB_POLL_S)
        return bool(self.from_threads)


_oldest = attrgetter("oldest")


def _who_waits(handle: asyncio.Handle) -> str:
    """The client that waits for a thread's answer."""
    called = handle._callback  # type: ignore[attr-defined]
    called = called.func if isinstance(called, partial) else called
    # `future.set_result` is a future's.
    for argument in (getattr(called, "__self__", None), *(handle._args or ())):
        if isinstance(argument, asyncio.Future):
            for _, context in getattr(argument, "_callbacks", None) or ():
                return str(context.get(ACTOR, "*"))
    return _context_of(handle).get(ACTOR, "*")


def _context_of(handle: asyncio.Handle) -> contextvars.Context:
    found: contextvars.Context = handle._context  # type: ignore[attr-defined]
    return found
