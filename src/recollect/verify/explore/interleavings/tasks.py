"""Several asyncio tasks on one store in one process, with real sockets to a real engine, in an order that we choose.

asyncio is deterministic; the world outside is not. When a caller calls, when a request reaches the engine, when its
reply is read, when a thread is done, when a timer goes off, and when a caller cancels: these, and nothing else, are the
choices. No order is tried that asyncio could not produce.

    begin    the client's next operation starts, and runs until it waits
    arrive   what was written to a connection reaches the engine, which executes it; the reply is fetched and kept
    deliver  the reply is given to the protocol, and the process runs until it waits again
    job/done the same for a function that was given to a thread
    turn     a task that has let others go first (`asyncio.sleep(0)`) goes on; one step of each other may come before
    timer    time goes on to the next timer; timers beyond `SLEEP_MAX_S` only when nothing else can happen
    cancel   the operation is cancelled where it waits (!), or at the very moment its reply arrives (~)
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Generator
from functools import partial
from operator import attrgetter
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.explore.interleavings.dialogues import carried
from recollect.verify.explore.interleavings.engine_waits import EngineWaits
from recollect.verify.explore.interleavings.footprints import (
    MEMORY,
    ORDER,
    WRITES_ALL,
    Footprint,
    of_operations,
)
from recollect.verify.explore.interleavings.held_connection import (
    PATIENCE_S,
    HeldConnection,
    Segment,
)
from recollect.verify.explore.interleavings.meetings import Meetings
from recollect.verify.explore.interleavings.outside import SLEEP_MAX_S, Outside, StepOption, StepOptions
from recollect.verify.explore.interleavings.program import ClientsProgram, ProgramOp
from recollect.verify.explore.interleavings.schedule_history import BEFORE, operation
from recollect.verify.explore.interleavings.search import (
    Alternating,
    Diverged,
    Redundant,
    Replay,
    Strategy,
    started,
)
from recollect.verify.explore.interleavings.seats import Seat, Seats
from recollect.verify.explore.interleavings.stepped_loop import SteppedLoop
from recollect.verify.explore.interleavings.store_memory import StoreMemory
from recollect.verify.explore.interleavings.store_past import HasPast, StorePast
from recollect.verify.explore.interleavings.told_statements import told_statements
from recollect.verify.explore.interleavings.world import (
    ChosenCourse,
    NewHistory,
    ScheduleRun,
    SessionNames,
    Stuck,
    Unfinished,
)
from recollect.verify.target import outcomes, pipe
from recollect.verify.target.interface_choice import Form
from recollect.verify.target.target import Target
from recollect.verify.target.worker import perform

STEPS_MAX = 2000
SCHEDULES_PER_STORE = 100
"""A store remembers sessions, so it is reopened after this many schedules, or sooner if it remembers much."""
OPENING_S = 60.0
LEAVING_S = 10.0
"""In the store's time: how long operations may take to end after their schedule was cut short."""
SETTLING_S = 0.001
"""The same, for what reaches the engine although its caller has gone: time goes on when nothing else can happen."""
CLOSE_S = 2.0


async def _closing(target: Target) -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=0.5)
    await asyncio.wait_for(target.close(), CLOSE_S)


async def _at_rest(outside: Outside, left: list[asyncio.Task[None]]) -> None:
    """What is still under way runs to its end, in any order, so that the store can be used again."""
    if left:
        await asyncio.wait(left, timeout=LEAVING_S)
    if not outside.is_at_rest:  # what nobody waits for any more would be the next schedule's
        await asyncio.sleep(SETTLING_S)


def _in_order(option: StepOption) -> str:
    """By the client's name; what the store does by itself comes last."""
    return option.choice.actor.replace("*", "~")


def _failed(request: pipe.Request, error: Exception, endpoint: Endpoint) -> pipe.Failed:
    writing = not isinstance(request, pipe.Read | pipe.ReadContext)
    outcome = outcomes.of_write(error) if writing else outcomes.of_read(error)
    return pipe.Failed(outcome, outcomes.describe(error, endpoint.scrubber), outcomes.kinds(error))


class TaskWorld(HasPast):
    """`waits` asks the engine who waits for whom."""

    def __init__(
        self,
        spec: str,
        endpoint: Endpoint,
        new_history: NewHistory,
        *,
        cancellations: int = 0,
        waits: EngineWaits | None = None,
        form: Form = "",
    ) -> None:
        self._spec, self._endpoint, self._new_history, self._form = spec, endpoint, new_history, form
        self._cancellations = cancellations
        self._outside = Outside(endpoint.engine, self, waits)
        self.session = SessionNames("t")
        self._loop: SteppedLoop | None = None
        self._dirty = self._only_cancelled = False
        self._past = StorePast(is_for_one=cancellations > 0)
        self._usual: dict[ClientsProgram, tuple[ScheduleRun, int]] = {}
        """How a program goes on a new store if nobody gives up, and with how many connections."""
        self._calm: set[tuple[int, ...] | None] = set()
        """How the store looked when nobody had given up on it yet, and whenever it was seen to go as usual."""
        self._steps = 0
        self._fingerprint: int | None = None
        """Of the store's memory as it was before this step; None as long as nobody wants to know what steps touch."""
        self._free = True
        """While true, nothing is recorded, and whatever can happen happens at once."""
        self._pending: set[tuple[str, bool]] | None = None
        """What the step that is under way has touched so far."""
        self._meetings = Meetings(self._outside)
        self._statement_ran = self._sees_statements = False
        """Whether SQLite has run a statement in this step, and whether we would know."""
        self._in_engine = False
        """In this step no code of the process runs, so that its memory stays as it is."""
        self._seats = Seats()
        self._cancellations_left = 0
        self._abandoned: Exception | None = None

    @property
    def unseen(self) -> str | None:
        return self._outside.unseen

    # ---- one schedule

    def run(self, program: ClientsProgram, strategy: Strategy, *, fresh: bool = False) -> ScheduleRun:
        alone, anew = self._past.begins(program, self._past_matters)
        used = len(self._past.uses)
        worn = used >= SCHEDULES_PER_STORE or (used > 0 and self._memory.is_large)
        if fresh or anew or worn or (self._dirty and not self._is_as_before(program)):
            self.close()
        if self._loop is None:
            self.open()
        if alone:
            self._warm(program)
        else:
            self._rehearse(program)
            for schedule in self._past.grows_by(program):
                with contextlib.suppress(Unfinished, Diverged):
                    self._one(program, started(Replay(schedule)), 0)
        self._past.counts(self._connections)
        try:
            return self._one(program, strategy, self._cancellations)
        finally:
            self._past.ended(program, self._course.schedule, 0 if self._dirty else self._connections)

    def _past_matters(self, program: ClientsProgram) -> bool:
        """Whether a store that has been used once goes another way: then it is opened anew for each schedule. The first
        run is for the engine, where scripts stay; the second is on a new store, the third on the same one."""
        courses: list[ScheduleRun] = []
        for place in range(3):
            if self._dirty or place == 1:
                self.close()
            if self._loop is None:
                self.open()
            self._warm(program)
            with contextlib.suppress(Unfinished):
                courses.append(self._one(program, started(Replay("")), 0))
        return self._dirty or len(courses) < 3 or not courses[1].went_like(courses[2])

    def _warm(self, program: ClientsProgram) -> None:
        """Lets each client of a new store read, which opens its connection and changes nothing."""
        if self._past.clients_max < len(program.clients):
            self._read(program)
            self._past.clients_max = len(program.clients)
            self._outside.look_for_strangers()

    def _is_as_before(self, program: ClientsProgram) -> bool:
        """Whether a store on which a caller has given up goes as a new one does, which is quicker to see than to open
        another. It may have to replace a connection first; one more than usual would be used instead of a new one."""
        usual, connections = self._usual.get(program, (None, 0))
        if not self._only_cancelled or not self._past.trusts:
            return False
        if self._is_calm():
            return True
        if usual is None:
            return False
        if self._connections < connections:
            self._read(program)
            if self._is_calm():
                return True
        for _ in range(2):
            if self._connections > connections:
                if not self._ends_idle(program, self._connections - connections):
                    return False
                self._read(program)  # a store notices when it next takes one
                if self._is_calm():
                    return True
            with contextlib.suppress(Unfinished):
                before = self._look()
                course = self._one(program, started(Alternating(1)), 0)
                if course.went_like(usual) and self._connections == connections:
                    self._calm |= {before, self._look()}
                    return not self._dirty
            if self._dirty:
                return False
        return False

    def _ends_idle(self, program: ClientsProgram, count: int) -> bool:
        """Ends so many idle connections, as an engine may. A store whose driver does not try again raises then, which
        is our doing: it is tried once, with all of them, and that store is not used again."""
        is_trial = self._past.is_unmoved is None
        if not self._outside.is_at_rest or self._past.is_unmoved is False:
            return False
        self._in_loop(self._outside.hang_up(self._connections if is_trial else count))
        if is_trial:
            with contextlib.suppress(Unfinished):
                self._one(program, started(Alternating(1)), 0)
            self._past.is_unmoved = not self._dirty
        return not is_trial

    def _is_calm(self) -> bool:
        return (look := self._look()) is not None and look in self._calm

    def _look(self) -> tuple[int, ...] | None:
        """What can be seen of a store that nobody uses; None if something is under way, or its engine is inside."""
        if self._endpoint.port is None or not self._outside.is_at_rest:
            return None
        self.session.schedule += 1  # what it keeps for the session before is in the past
        return self._shape.fingerprint(), self._connections, *self._outside.loop.waiting(SLEEP_MAX_S)

    def _read(self, program: ClientsProgram) -> None:
        with contextlib.suppress(Unfinished):
            self._one(program.reading, started(Alternating(1)), 0)

    def trust_no_more(self) -> None:
        self._past.trust_no_more()
        self._usual.clear()

    @property
    def _connections(self) -> int:
        return len(self._outside.open_connections)

    def _rehearse(self, program: ClientsProgram) -> None:
        """Runs a new program a few times first, which the engine remembers (scripts); and any on a store that has not
        done what it does, or for fewer clients: then its connections and prepared statements are there."""
        if self._past.has_done(program):
            return
        rehearsals: tuple[Strategy, ...] = (Alternating(1), Alternating(-1), Replay(""))
        is_enough = bool(self._cancellations) and self._past.knows(program)
        for number, rehearsal in enumerate(rehearsals):
            if (program, number) in self._past.spoiling:
                continue
            with contextlib.suppress(Unfinished):
                self._one(program, started(rehearsal), 0)
            if self._dirty:  # a damaged store would show nothing: better a cold one
                self._past.spoiling.add((program, number))
                self.close()
                self.open()
            elif is_enough and self._connections == self._usual.get(program, (None, self._connections))[1]:
                break
        if self._cancellations and self._past.goes_as_usual(program) and program not in self._usual:
            with contextlib.suppress(Unfinished):
                self._usual[program] = self._one(program, started(Alternating(1)), 0), self._connections
        self._past.did(program)
        self._calm = {self._look()}
        self._outside.look_for_strangers()

    def _one(self, program: ClientsProgram, strategy: Strategy, cancellations: int) -> ScheduleRun:
        self.session.schedule += 1
        self._course = ChosenCourse(strategy, self.session.shorten)
        self._history = self._new_history(program)
        self._seats = Seats.of_clients(program)
        self._cancellations_left = cancellations
        self._outside.begin_schedule()
        self._pending = None
        self._steps = 0
        self._abandoned = None
        assert self._loop is not None
        self._loop.begin_schedule()
        random.seed(0)  # a back-off with jitter is the same each time
        self._dirty = True
        self._in_loop(self._schedule(program))
        damaged = self._history.disturbed or self._seats.any_busy
        self._dirty = damaged or self._history.gave_up
        self._only_cancelled = self._history.gave_up and not damaged
        if self._abandoned is not None:
            raise self._abandoned
        return self._course.run(self._history)

    async def _schedule(self, program: ClientsProgram) -> None:
        self._done = asyncio.get_running_loop().create_future()
        for _ in range(program.before):
            work = operation(self._history, BEFORE, ProgramOp("a"), lambda kind, label: None)
            await self._carry(work, None)
        self._fingerprint = None
        self._free = False
        try:
            await self._done
        except Exception as error:
            self._abandoned = error
        self._free = True
        if not self._history.blamed and not isinstance(self._abandoned, Unfinished):
            await _at_rest(self._outside, self._seats.tasks)

    # ---- opening and closing

    def open(self) -> None:
        self._free = True
        self._loop = self._outside.open_loop()
        self._in_loop(self._opening())
        self._dirty, self._calm = False, set()
        self._past.opened()

    async def _opening(self) -> None:
        self._target = Target(self._spec, self._endpoint, self._form)
        await self._target.open()
        remembered = partial(StoreMemory, *self._target.stores, is_past=self.session.is_past)
        self._memory, self._shape = remembered(), remembered(only_shape=True)

    def _in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it in our loop, with the loop's clock."""
        assert self._loop is not None
        try:
            statements = told_statements(
                self._tell_statement, partial(setattr, self, "_sees_statements", True)
            )
            with self._outside.entered(self._loop), statements:
                self._loop.run_until_complete(work)
        finally:
            self._free = True

    def close(self) -> None:
        if self._loop is None:
            return
        with contextlib.suppress(Exception, asyncio.CancelledError):
            self._in_loop(_closing(self._target))
        self._outside.close_loop(self._loop)
        self._loop = None

    # ---- choosing what happens next

    def quiescent(self) -> None:
        """Nothing is left to run: makes one thing happen."""
        assert self._loop is not None
        self._outside.settle()
        if self._loop.comes_from_outside(0.01):
            return
        self._account()
        options = self._enabled(self._loop)
        if options and all(option.is_timer for option in options):
            outside = self._outside
            if outside.job_ends() or outside.driver_answers() or outside.engine_answers():
                options = self._enabled(self._loop)
            elif not self._free and self._seats.any_overdue(outside.now):
                options = []
        at_once = next((option for option in options if option.setup or self._free), None)
        if at_once is not None:
            self._in_engine = False
            try:
                touched = at_once.act()
            except Diverged as error:
                self._abandon(error)
                return
            if self._pending is not None:
                self._pending |= touched
        elif options:
            self._step(options)
        else:
            self._nothing_left(self._loop)

    def _step(self, options: list[StepOption]) -> None:
        try:
            self._finish_step()
            self._steps += 1
            if self._steps > STEPS_MAX:
                raise Unfinished(f"more than {STEPS_MAX} steps")
            index = self._course.choose([option.choice for option in options])
            if self._course.reads_footprints and self._fingerprint is None:
                self._fingerprint = self._memory.fingerprint()
                self._outside.time_and_turns()
            self._outside.moment += 1
            self._pending, self._statement_ran = set(), False
            self._meetings.begin_step()
            self._in_engine = options[index].in_engine
            self._outside.moves(options[index])
            self._pending |= options[index].act()
        except Exception as error:
            self._abandon(error)
            return
        if options[index].is_timer and len(options) > 1:
            for seat in self._seats:  # time passes for everybody
                seat.held_up = seat.held_up or seat.busy

    def _abandon(self, error: Exception) -> None:
        """What is still under way runs to its end; the schedule counts for nothing."""
        self._free = True
        if not self._done.done():
            self._done.set_exception(error)

    def _finish_step(self) -> None:
        if self._pending is not None:
            touched = frozenset(self._pending)
            self._course.did(
                self._meetings.with_unseen(touched) if self._course.reads_footprints else touched
            )
        self._pending = None

    def _account(self) -> None:
        """Notes whether the process has changed anything that others see since the last step."""
        if self._pending is None or self._free or self._in_engine:
            return
        if self._course.reads_footprints:
            now = self._memory.fingerprint()
            # An embedded engine whose statements are not seen may have done something in any step.
            seen = self._sees_statements and self._endpoint.engine == "sqlite"
            blind = self._endpoint.port is None and not seen
            if blind or self._statement_ran:
                self._pending |= WRITES_ALL
            self._pending.add((MEMORY, blind or now != self._fingerprint))
            self._fingerprint = now
            self._pending |= self._outside.time_and_turns()

    def _enabled(self, loop: SteppedLoop) -> list[StepOption]:
        found = StepOptions(alone=self._cancellations > 0)
        self._outside.offer(found)
        if not self._free:
            self._seats.offer(found, self._begin)
            if self._cancellations_left:
                self._seats.offer_to_cancel(found, self._outside, self._cancel)
        if self._free or self._seats.any_busy:
            self._outside.offer_timer(loop, found)
        options = found if self._free else self._seats.without_rounds(self._outside.in_this_turn(found))
        return sorted(options, key=_in_order) if len(options) > 1 else options

    # ---- what happens outside

    def note(self, actor: str, kind: str, label: str, told: str = "") -> None:
        if not self._free:
            self._course.note(actor, kind, label, told)

    def _tell_statement(self, sql: str) -> None:
        """Whoever's step is under way has asked for it."""
        self._statement_ran = True
        self.note(self._course.last, "arrive", " ".join(sql.split()), carried(sql.encode(), b"", WRITES_ALL))

    @property
    def chooses(self) -> bool:
        return not self._free

    def picked(self, who: str) -> None:
        if not self._free:
            self._course.picked(who)

    def answered(self, asked: Segment) -> None:
        if not self._free and self._seats.heard(asked):
            self._steps = STEPS_MAX  # nobody else could move all this time

    # ---- operations

    def _begin(self, seat: Seat) -> Footprint:
        op = seat.ops[seat.begun]
        seat.begun += 1
        seat.begun_s, seat.held_up = self._outside.now, False
        seat.task = self._outside.loop.create_task(self._operate(seat, op), context=seat.context())
        return of_operations({seat.operation}) | {(ORDER, False)}

    def _cancel(self, seat: Seat, with_reply: HeldConnection | None = None) -> Footprint:
        self._cancellations_left -= 1
        self._outside.given_up.add(seat.operation)
        touched = of_operations({seat.operation}) | {(MEMORY, True)}
        if with_reply is not None:
            touched |= self._outside.deliver(with_reply)
        self.note(seat.name, "cancel", "as the reply arrives" if with_reply is not None else "")
        assert seat.task is not None
        self._history.gives_up(seat.number)
        seat.task.cancel()
        return touched

    async def _operate(self, seat: Seat, op: ProgramOp) -> None:
        def note(kind: str, label: str) -> None:
            if self._pending is not None:
                self._pending.add((ORDER, kind == "end"))
            self._meetings.note(kind, seat.operation)
            self.note(seat.name, kind, label)

        try:
            await self._carry(operation(self._history, seat.number, op, note), seat)
        except asyncio.CancelledError:
            if self._free:
                raise
            note("end", self._history.cancelled(seat.number))

    async def _carry(self, work: Generator[pipe.Request, pipe.Reply, None], seat: Seat | None) -> None:
        """Passes the operation's requests to the store until it is done."""
        with contextlib.suppress(StopIteration):
            request = next(work)
            while True:
                request = work.send(await self._asked(request, seat))

    async def _asked(self, request: pipe.Request, seat: Seat | None) -> pipe.Reply:
        assert not isinstance(request, pipe.Watch | pipe.Close)
        request.session = self.session(self.session.number(request.session))
        step = self._steps
        try:
            return await perform(self._target, request)
        except Exception as error:
            if step == self._steps:  # at once, as a driver raises whose connection is in use
                self._meetings.others |= self._seats.under_way
            failed = _failed(request, error, self._endpoint)
            if seat is not None and seat.held_up and "TimeoutError" in failed.kinds:
                self._history.excuse(seat.number)
            return failed

    # ---- the end

    def _nothing_left(self, loop: SteppedLoop) -> None:
        patience_s = OPENING_S if self._free else PATIENCE_S
        outside, unfinished = self._outside, self._free or self._seats.any_busy
        if (
            outside.comes_from_threads(patience_s)
            or (unfinished and outside.driver_answers(PATIENCE_S))
            or outside.engine_answers()
            or loop.comes_from_outside(patience_s)
        ):
            return
        if self._free:
            raise Stuck("the store waits for something that is not under control")
        if self._done.done():
            return
        try:
            self._finish_step()
        except (Diverged, Redundant) as error:
            self._abandon(error)
            return
        for seat in filter(attrgetter("busy"), self._seats):
            self._history.hangs(seat.number)
            self.note(seat.name, "hang", "waits for ever")
        self._done.set_result(None)
