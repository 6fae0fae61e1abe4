"""Several threads on one synchronous store; at every line of the store's own code we choose which thread goes on.

One thread runs at a time. At each line of the files that define the store, the running thread asks for the next choice,
and hands over if that is another thread: as long as the same thread goes on, a switch point costs a function call.
Locks that the store makes are known; whatever else makes a thread wait (a lock of the engine) is noticed: every thread
sleeps, and the engine has nothing to do. Then the others go on.

Lines, not instructions: since 3.10 CPython hands over only at calls and at the ends of loops, so a line without a call
is not interrupted in practice. Two calls on one line are not told apart.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from _thread import allocate_lock
from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.explore.interleavings.footprints import WRITES_ALL
from recollect.verify.explore.interleavings.known_locks import KnownLock, adopt, known_locks
from recollect.verify.explore.interleavings.line_stops import LineStops, line_stops
from recollect.verify.explore.interleavings.other_threads import all_wait, await_wait, native_threads
from recollect.verify.explore.interleavings.program import NAMES, ClientsProgram, ProgramOp
from recollect.verify.explore.interleavings.schedule_history import BEFORE, operation
from recollect.verify.explore.interleavings.search import Choice, Replay, Strategy, started
from recollect.verify.explore.interleavings.store_past import StorePast, StoreUse
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
from recollect.verify.target.line_watching import files_of
from recollect.verify.target.target import Target, resolve
from recollect.verify.target.worker import perform

BLOCKED_AFTER_S = 0.03
CALM_MIN = 2
"""How many times in a row every thread must be seen asleep before the running one counts as waiting for a held one."""
PATIENCE_S = 15.0
"""How long everybody must be seen waiting before they hang: longer than drivers wait for a lock by default. Time in
which nobody looked, or somebody had something to do, does not count: on a machine with other work it passes."""
RUNS_S_MAX = 120.0
"""How long a thread may run between two lines of the store."""
STEPS_MAX = 3000
SCHEDULES_PER_STORE = 100


class _Signal:
    """Given once, taken once. A semaphore of `threading` would do, at five times the price."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def give(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has been given, and nobody has taken it yet
            self._lock.release()

    def take(self, timeout_s: float = -1.0) -> bool:
        return self._lock.acquire(timeout=timeout_s)


class _Runner:
    """One client's thread."""

    def __init__(self, world: ThreadWorld, number: int, ops: tuple[ProgramOp, ...]) -> None:
        self.name, self.number, self.ops = NAMES[number], number, ops
        self.turn = _Signal()
        self.finished = False
        self.waits_for: KnownLock | None = None
        self.away = False
        """It waits for something that we do not know."""
        self.pauses = False
        """It gives the others time: if they can, they go on until one of them is done with an operation."""
        self.waited = False
        """It was `away` during this operation: if its patience ended, that is our doing."""
        self.thread = threading.Thread(
            target=world._live, args=(self,), daemon=True, name=f"recollect-{self.name}"
        )

    def go_on(self) -> None:
        """Its turn has come; the first time, it begins."""
        if self.thread.ident is None:
            self.thread.start()
        else:
            self.turn.give()


class _GivenUp(BaseException):
    """Ends a thread that waits for ever."""


class ThreadWorld:
    """`is_idle` says whether the engine has nothing to do: then whoever waits for its answer has got it."""

    unseen: str | None = None
    has_grown = False

    def __init__(
        self,
        spec: str,
        endpoint: Endpoint,
        new_history: NewHistory,
        is_idle: Callable[[], bool],
        *,
        form: Form = "",
    ) -> None:
        self._form = form
        self._spec, self._endpoint, self._new_history = spec, endpoint, new_history
        self._idle, self._asking = is_idle, threading.Lock()
        self._deciding = threading.Lock()
        """Held while it is decided who goes on: by whose turn it is, or by the one that watches."""
        self._started: set[str] = set()
        """Threads that we have started, and that may still be there: the system takes its time to end one."""
        self._stops: LineStops | None = None
        self._threads_before: set[str] = set()
        self.session = SessionNames("h")
        self._held = ExitStack()
        self._files: set[str] = set()
        self._target: Target | None = None
        self._past = StorePast()
        self._dirty = True
        self._running: _Runner | None = None
        self._runners: list[_Runner] = []

    @property
    def earlier(self) -> tuple[StoreUse, ...]:
        return self._past.before_latest

    def trust_no_more(self) -> None:
        self._past.trust_no_more()

    def open(self) -> None:
        self._open()

    # ---- one schedule

    def run(self, program: ClientsProgram, strategy: Strategy, *, fresh: bool = False) -> ScheduleRun:
        _, anew = self._past.begins(program, self._past_matters)
        if fresh or anew or self._dirty or len(self._past.uses) >= SCHEDULES_PER_STORE:
            self._open()
        try:
            return self._one(program, strategy)
        finally:
            self._past.ended(program, self._course.schedule)

    def _past_matters(self, program: ClientsProgram) -> bool:
        """Whether a store that has been used once goes another way: then it is opened anew for each schedule."""
        self._open()
        courses: list[ScheduleRun] = []
        for _ in range(2):
            with contextlib.suppress(Unfinished):
                courses.append(self._one(program, started(Replay(""))))
        return self._dirty or len(courses) < 2 or not courses[0].went_like(courses[1])

    def _one(self, program: ClientsProgram, strategy: Strategy) -> ScheduleRun:
        self.session.schedule += 1
        self._course = ChosenCourse(strategy, self.session.shorten)
        self._history = self._new_history(program)
        self._dirty = True
        for _ in range(program.before):
            work = operation(self._history, BEFORE, ProgramOp("a"), lambda kind, label: None)
            self._carry(work, None)
        self._steps = self._progress = 0
        self._error: Exception | None = None
        self._free = self._hung = False
        self._over = _Signal()
        self._runners = [_Runner(self, number, ops) for number, ops in enumerate(program.clients)]
        self._running = None
        with self._deciding:
            self._decide(None)
        self._watch()
        for runner in self._runners:
            runner.thread.join(0.5)
        self._running = None
        self._look_for_strangers()
        alive = any(runner.thread.is_alive() for runner in self._runners)
        self._dirty = alive or self._history.disturbed
        if self._error is not None:
            raise self._error
        return self._course.run(self._history)

    def _watch(self) -> None:
        """Waits for the end; lets another thread go on when the running one waits for something unknown."""
        seen, since, calm, waited_s = -1, time.monotonic(), 0, 0.0
        while not self._over.take(BLOCKED_AFTER_S):
            if self._progress != seen:
                seen, since, calm, waited_s = self._progress, time.monotonic(), 0, 0.0
                continue
            is_calm = all_wait(self._is_idle)
            calm, waited_s = (calm + 1, waited_s + BLOCKED_AFTER_S) if is_calm else (0, 0.0)
            if calm >= CALM_MIN and self._leave_it_waiting(seen):
                calm = 0
            elif waited_s > PATIENCE_S:
                with self._deciding:
                    self._give_up()
                return
            elif time.monotonic() - since > RUNS_S_MAX:
                self._error = Unfinished("the store runs on, and comes to no line of its own")
                self._let_go(None)
                self._over.give()

    def _leave_it_waiting(self, seen: int) -> bool:
        """The running thread waits for something that we do not know: the others go on, if they can. Unless it has
        moved since it was looked at."""
        with self._deciding:
            runner = self._running
            if runner is None or runner.away or self._progress != seen:
                return False
            runner.away = runner.waited = True
            self._course.note(runner.name, "blocked", "a lock")
            if not self._able():
                return False
            self._decide(None)
            return True

    def _give_up(self) -> None:
        """Nothing is left that could happen: ends the threads where they wait."""
        waiting = [runner for runner in self._runners if not runner.finished]
        for runner in waiting if not self._free else ():
            self._history.hangs(runner.number)
            self._course.note(runner.name, "hang", "waits for ever")
        self._free = self._hung = True
        for runner in waiting:
            runner.go_on()
        self._over.give()

    # ---- opening and closing

    def _open(self) -> None:
        self.close()
        factory = resolve(self._spec)
        self._files = set(files_of(factory))
        adopt(self, sys.modules[factory.__module__])
        self._held.enter_context(known_locks(self, self._files))
        self._threads_before = native_threads()
        self._target = Target(self._spec, self._endpoint, self._form)
        _driven(self._target.open())
        self._files |= files_of(*self._target.stores)
        self._stops = line_stops(self._files)
        self._held.callback(self._stops.close)
        self._look_for_strangers()
        self._dirty = False
        self._past.opened()

    def _look_for_strangers(self) -> set[str]:
        """Threads that the store or its driver has started. They are not stopped at lines."""
        there = native_threads()
        self._started = (self._started | {str(runner.thread.native_id) for runner in self._runners}) & there
        found = there - self._threads_before - self._started
        if found:
            self.unseen = "the store works in threads of its own"
        return found

    def _is_idle(self) -> bool:
        with self._asking:  # a client's thread may ask, and so may the one that watches
            return self._idle()

    def close(self) -> None:
        self._held.close()
        target, self._target = self._target, None
        if target is not None:
            with contextlib.suppress(Exception):
                _driven(target.close())

    # ---- switching

    def _able(self) -> list[_Runner]:
        able = [
            runner
            for runner in self._runners
            if not (runner.finished or runner.away)
            and (runner.waits_for is None or runner.waits_for.owner is None)
        ]
        return [runner for runner in able if not runner.pauses] or able

    def wait_for(self, lock: KnownLock) -> bool:
        if self._hung:
            raise _GivenUp
        runner = self._running
        if runner is None or self._free or runner.thread.ident != threading.get_ident():
            return False
        runner.waits_for = lock
        self._switch(runner)
        runner.waits_for = None
        return True

    def pause(self) -> None:
        if self._hung:
            raise _GivenUp
        runner = self._running
        if runner is None or self._free or runner.thread.ident != threading.get_ident():
            return
        runner.pauses = True
        self._switch(runner)
        runner.pauses = False

    def _switch(self, runner: _Runner) -> None:
        """A switch point: the running thread has come here, and it or another goes on."""
        if self._free:
            return
        with self._deciding:
            if runner.away:  # it has come back from its wait; somebody else may be running now
                runner.away = False
                running = self._running
                goes_on = running is None or running is runner or running.away
                if goes_on:
                    self._running = runner
            else:
                goes_on = True
            goes_on = goes_on and self._decide(runner)
        if not goes_on:
            runner.turn.take()

    def _decide(self, runner: _Runner | None) -> bool:
        """Chooses who goes on, and gives it its turn; whether that is the one who asks."""
        self._progress += 1
        self._steps += 1
        able = self._able()
        if not able:
            self._running = None  # the first to come back from its wait goes on
            if all(one.finished for one in self._runners):
                self._over.give()
            elif not any(one.away for one in self._runners):
                self._give_up()  # they wait for each other's locks
            return False
        try:
            if self._steps > STEPS_MAX:
                raise Unfinished(f"more than {STEPS_MAX} lines")
            choices = [Choice(one.name, one.name, f"{one.name}:{self._steps}") for one in able]
            chosen = able[self._course.choose(choices)]
            self._course.did(WRITES_ALL)
        except Exception as error:
            self._error = error
            self._let_go(runner)
            return True
        if chosen is not runner:
            self._running = chosen
            chosen.go_on()
        return chosen is runner

    def _let_go(self, runner: _Runner | None) -> None:
        """Lets everybody run to the end, in any order."""
        self._free = True
        for other in self._runners:
            if other is not runner and not other.finished:
                other.go_on()

    # ---- inside a client's thread

    def _live(self, runner: _Runner) -> None:
        try:
            for place, op in enumerate(runner.ops):
                if place:
                    self._switch(runner)
                runner.waited = False
                self._carry(operation(self._history, runner.number, op, self._note_of(runner)), runner)
                for other in self._runners:
                    other.pauses = False
        except _GivenUp:
            pass
        finally:
            self._leave(runner)

    def _leave(self, runner: _Runner) -> None:
        with self._deciding:
            runner.finished = True
            came_back, runner.away = runner.away, False
            others_turn = came_back and self._running is not None and self._running is not runner
            if not self._free and not others_turn:
                self._decide(runner)
        if all(one.finished for one in self._runners):
            self._over.give()

    def _note_of(self, runner: _Runner) -> Any:
        return lambda kind, label: self._course.note(runner.name, kind, label)

    def _carry(self, work: Any, runner: _Runner | None) -> None:
        request = next(work)
        with contextlib.suppress(StopIteration):
            while True:
                request = work.send(self._asked(request, runner))

    def _asked(self, request: pipe.Request, runner: _Runner | None) -> pipe.Reply:
        assert self._target is not None
        assert not isinstance(request, pipe.Watch | pipe.Close)
        request.session = self.session(self.session.number(request.session))
        try:
            with self._lines_of(runner):
                reply: pipe.Reply = _driven(perform(self._target, request))
            if self._hung:
                raise _GivenUp
            return reply
        except Exception as error:
            writing = not isinstance(request, pipe.Read | pipe.ReadContext)
            outcome = outcomes.of_write(error) if writing else outcomes.of_read(error)
            if isinstance(error, Stuck):
                self._error = error
            if runner is not None and (runner.waited or isinstance(error, Stuck)):
                self._history.excuse(runner.number)
            said = outcomes.describe(error, self._endpoint.scrubber)
            return pipe.Failed(outcome, said, outcomes.kinds(error))

    def _lines_of(self, runner: _Runner | None) -> Any:
        if runner is None:
            return contextlib.nullcontext()
        assert self._stops is not None
        return self._stops.watching(partial(self._on_line, runner))

    def _on_line(self, runner: _Runner, file: str, line: int) -> None:
        if self._hung:
            raise _GivenUp
        if self.unseen is not None:  # whatever they do, they have done it before the next choice, each time
            await_wait(self._is_idle, self._look_for_strangers())
        self._course.note(runner.name, "line", f"{_name(file)}:{line}")
        self._switch(runner)


@lru_cache
def _name(file: str) -> str:
    return Path(file).name


def _driven(work: Any) -> Any:
    """The result of a coroutine that never waits, as `perform` is with a synchronous store."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise Stuck("the store is asynchronous: explore its tasks")
