"""The tasks of one asynchronous function, in an order that we choose: what `tasks` does for a store, for any test.

The function itself is *; the tasks that it makes are A, B and so on, and tasks made by those belong to them. A task
begins when its beginning is chosen. Nothing is known about what steps share, so no two orders count as the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from string import ascii_uppercase
from typing import Any

from recollect.verify.explore.interleavings.footprints import NOTHING, Footprint
from recollect.verify.explore.interleavings.held_connection import ACTOR, PATIENCE_S, Segment
from recollect.verify.explore.interleavings.outside import Outside, StepOption, StepOptions
from recollect.verify.explore.interleavings.search import Strategy
from recollect.verify.explore.interleavings.stepped_loop import SteppedLoop
from recollect.verify.explore.interleavings.world import ChosenCourse, LoggedStep, Unfinished

STEPS_MAX = 2000
ROUNDS_FREE = 5
"""How often a task may ask the same and get the same answer while others could move."""
LEAVING_S = 0.5
ITSELF = "*"


class TasksHang(AssertionError):
    """No task can go on, and nothing is left that could happen."""


@dataclass
class CourseOfTest:
    """One run of the function."""

    error: Exception | None
    schedule: str
    steps: list[LoggedStep]
    preemptions: int


@dataclass
class _Beginning:
    """A task that was made and has not begun."""

    name: str
    gate: asyncio.Future[None]


@dataclass
class _Asking:
    """What a task asked last, what came back, and how many times in a row both were the same."""

    last: tuple[bytes, bytes] = (b"", b"")
    rounds: int = 0


@dataclass
class _Schedule:
    """What one run knows."""

    course: ChosenCourse
    beginnings: list[_Beginning] = field(default_factory=list)
    asking: dict[str, _Asking] = field(default_factory=dict)
    tasks: int = 0
    steps: int = 0
    is_over: bool = False
    """From now on, whatever can happen happens at once."""


class OwnTasks:
    def __init__(self, call: Callable[[], Coroutine[Any, Any, None]], engine: str) -> None:
        self._call = call
        self._outside = Outside(engine, self)
        self._now: _Schedule
        self._loop: SteppedLoop
        self._watches = False

    @property
    def unseen(self) -> str | None:
        return self._outside.unseen

    def run(self, strategy: Strategy, *, watch: bool = False) -> CourseOfTest:
        """Calls the function once; with `watch`, looks for connections that are not under control."""
        self._now = _Schedule(ChosenCourse(strategy, str))
        self._watches = watch
        self._loop = self._outside.open_loop()
        self._outside.begin_schedule()
        self._loop.begin_schedule()
        self._loop.set_exception_handler(lambda loop, context: None)  # the test's own result is what counts
        error: Exception | None = None
        with self._outside.entered(self._loop):
            work = self._call()
            main = self._loop.create_task(work)
            self._loop.set_task_factory(self._make_task)
            try:
                self._loop.run_until_complete(main)
            except Exception as raised:
                if not main.done():
                    self._leave()
                    if not isinstance(raised, TasksHang):
                        raise
                error = raised
            else:
                self._leave()
            finally:
                self._end()
        course = self._now.course
        return CourseOfTest(error, "".join(course.codes), course.steps, course.preemptions)

    # ---- its loop

    def _make_task(self, loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        now = self._now
        if ACTOR.get() != ITSELF or now.is_over or now.tasks == len(ascii_uppercase):
            return asyncio.Task(work, loop=loop, **options)
        name = ascii_uppercase[now.tasks]
        now.tasks += 1
        context = options.pop("context", None) or contextvars.copy_context()
        context.run(ACTOR.set, name)
        gate = loop.create_future()
        now.beginnings.append(_Beginning(name, gate))
        return asyncio.Task(_after(gate, work), loop=loop, context=context, **options)

    def _leave(self) -> None:
        """Ends what the function left behind."""
        self._now.is_over = True
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(asyncio.wait(left, timeout=LEAVING_S))

    def close(self) -> None:
        """Leaves no thread behind."""
        self._outside.pool.shutdown()

    def _end(self) -> None:
        for connection in self._outside.connections:
            connection.end()
        self._loop.close()

    # ---- choosing what happens next

    def quiescent(self) -> None:
        self._outside.settle()
        if self._watches:
            self._outside.look_for_strangers()
        if self._loop.comes_from_outside(0.01):
            return
        options = self._enabled()
        if options and all(option.is_timer for option in options):
            outside = self._outside
            if outside.job_ends() or outside.driver_answers() or outside.engine_answers():
                options = self._enabled()
        at_once = next((option for option in options if option.setup or self._now.is_over), None)
        if at_once is not None:
            at_once.act()
        elif options:
            self._step(options)
        else:
            self._nothing_left()

    def _enabled(self) -> list[StepOption]:
        found = StepOptions()
        self._outside.offer(found)
        for beginning in self._now.beginnings:
            found.offer(beginning.name, "begin", partial(self._begin, beginning))
        self._outside.offer_timer(self._loop, found)
        going_round = {name for name, asking in self._now.asking.items() if asking.rounds >= ROUNDS_FREE}
        others = [option for option in found if option.choice.actor not in going_round]
        return sorted(others or found, key=lambda option: option.choice.actor.replace("*", "~"))

    def _step(self, options: list[StepOption]) -> None:
        self._now.steps += 1
        if self._now.steps > STEPS_MAX:
            raise Unfinished(
                f"an order has more than {STEPS_MAX} steps: a task asks the same again and again"
            )
        index = self._now.course.choose([option.choice for option in options])
        self._outside.moment += 1
        self._now.course.did(options[index].act())

    def _begin(self, beginning: _Beginning) -> Footprint:
        self._now.beginnings.remove(beginning)
        self.note(beginning.name, "begins", "")
        if not beginning.gate.done():
            beginning.gate.set_result(None)
        return NOTHING

    def _nothing_left(self) -> None:
        if (
            self._outside.comes_from_threads(PATIENCE_S)
            or self._outside.driver_answers(PATIENCE_S)
            or self._outside.engine_answers()
            or self._loop.comes_from_outside(PATIENCE_S)
        ):
            return
        raise TasksHang("no task can go on: each waits, and nothing is left that could happen")

    # ---- what happens outside

    def note(self, actor: str, kind: str, label: str, told: str = "") -> None:
        if not self._now.is_over:
            self._now.course.note(actor, kind, label, told)

    @property
    def chooses(self) -> bool:
        return False

    def picked(self, who: str) -> None:
        if not self._now.is_over:
            self._now.course.picked(who)

    def answered(self, asked: Segment) -> None:
        """Counts how often the task asks the same question and gets the same answer."""
        mine, now = self._now.asking.setdefault(asked.owner, _Asking()), (bytes(asked.data), asked.reply)
        same = now == mine.last
        mine.rounds, mine.last = mine.rounds + 1 if same else 0, now
        for name, other in self._now.asking.items():
            if name != asked.owner and not same:
                other.rounds = 0


async def _after(gate: asyncio.Future[None], work: Coroutine[Any, Any, Any]) -> Any:
    try:
        await gate
    except BaseException:
        work.close()
        raise
    return await work
