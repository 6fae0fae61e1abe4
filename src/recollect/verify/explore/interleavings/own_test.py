"""`@recollect.interleaved`: a user's own asynchronous test, in every order of its tasks.

    @recollect.interleaved
    async def test_two_requests_at_once(endpoint):
        store = Memory(endpoint.url)
        await asyncio.gather(handle(store, "a"), handle(store, "b"))
        ...

The test runs again and again, each time in an event loop of ours, and each time in another order: when a task begins,
when a request reaches the engine, when its reply is read, when a thread's job is done, when a timer goes off. An order
in which it fails is replayed, and reported with the error. A test that could not be explored fails: it was not tried.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar, overload

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.explore.interleavings.held_connection import real_clock
from recollect.verify.explore.interleavings.own_tasks import CourseOfTest, OwnTasks
from recollect.verify.explore.interleavings.search import (
    CODE,
    Alternating,
    Attempts,
    ByPreemptions,
    Diverged,
    Replay,
    replayed,
)
from recollect.verify.explore.interleavings.world import Stuck, Unfinished

CONFIRMATIONS = 3
STEPS_TOLD = 40

AsyncTest = Callable[..., Coroutine[Any, Any, None]]
_Given = TypeVar("_Given", bound=AsyncTest)


class NotExplored(AssertionError):
    """Not every order could be tried; the message says why, and what to do."""


class _OrdersWanted(NamedTuple):
    seconds: float
    bound: int
    engine: str | None
    schedule: str | None


@overload
def interleaved(test: _Given, /) -> Callable[..., None]: ...


@overload
def interleaved(
    *, seconds: float = ..., bound: int = ..., engine: str | None = ..., schedule: str | None = ...
) -> Callable[[AsyncTest], Callable[..., None]]: ...


def interleaved(
    test: AsyncTest | None = None,
    /,
    *,
    seconds: float = 10.0,
    bound: int = 2,
    engine: str | None = None,
    schedule: str | None = None,
) -> Any:
    """Runs an asynchronous test in every order of its tasks with at most `bound` preemptions, the fewest first.

    `engine` (``redis``, ``postgres``) names the protocol the test speaks, as does an `Endpoint` among its arguments.
    `schedule` is one order, as a failure printed it. Each order calls the test again: it should open its own store, and
    use sessions that nobody has used before.
    """
    if schedule is not None and "".join(CODE.findall(schedule)) != schedule:
        raise ValueError(f"schedule {schedule!r}: not an order of tasks, such as 'AABBA'")
    limits = _OrdersWanted(seconds, bound, engine, schedule)

    def decorate(test: AsyncTest) -> Callable[..., None]:
        if not inspect.iscoroutinefunction(test):
            raise TypeError(f"@interleaved is for an `async def` test; {test!r} is not one")

        @functools.wraps(test)
        def run(*arguments: Any, **named: Any) -> None:
            _Exploring(functools.partial(test, *arguments, **named), limits).explore()

        return run

    return decorate if test is None else decorate(test)


class _Exploring:
    """Explores one test until an order fails or none is left."""

    def __init__(self, call: functools.partial[Coroutine[Any, Any, None]], limits: _OrdersWanted) -> None:
        given = (*call.args, *call.keywords.values())
        found = next((one.engine for one in given if isinstance(one, Endpoint)), "")
        self._tasks = OwnTasks(call, limits.engine or found)
        self._limits = limits
        self._tried = 0

    def explore(self) -> None:
        try:
            if self._limits.schedule is not None:
                self._judge(replayed(self._limits.schedule, self._tasks.run))
                return
            self._rehearse()
            self._search(real_clock() + self._limits.seconds)
        except (Diverged, Unfinished, Stuck) as reason:
            raise NotExplored(f"not every order could be tried: {reason}") from None
        finally:
            self._tasks.close()

    def _rehearse(self) -> None:
        """The usual order first: what fails there has nothing to do with orders. Then each task in turn, so that the
        engine knows all scripts and statements."""
        for rehearsal in (Replay(""), Alternating(1)):
            course = self._run(rehearsal, watch=True)
            if course.error is not None and isinstance(rehearsal, Replay):
                raise course.error
        if (unseen := self._tasks.unseen) is not None:
            raise NotExplored(f"not every order could be tried: {unseen}")

    def _search(self, end: float) -> None:
        strategy = ByPreemptions(1)
        for bound in range(1, self._limits.bound + 1):
            strategy.bound = bound
            attempts = Attempts()
            while strategy.start():
                if real_clock() > end:
                    return self._time_over(bound)
                try:
                    course = self._tasks.run(strategy)
                except Diverged as reason:
                    if not attempts.allows(reason):
                        raise
                    strategy.again()
                    continue
                attempts.begin()
                self._tried += 1
                self._judge(course)
        return None

    def _time_over(self, bound: int) -> None:
        if bound == 1:
            raise NotExplored(
                f"the time ended after {self._tried} orders, before every one with one preemption was tried: "
                "give it more, @interleaved(seconds=60)"
            )

    def _run(self, strategy: Replay | Alternating, *, watch: bool = False) -> CourseOfTest:
        strategy.start()
        return self._tasks.run(strategy, watch=watch)

    def _judge(self, course: CourseOfTest) -> None:
        if course.error is None:
            return
        if self._limits.schedule is None:
            same = sum(self._fails_again(course) for _ in range(CONFIRMATIONS))
            course.error.add_note(_told(course, self._tried, same))
        raise course.error

    def _fails_again(self, course: CourseOfTest) -> bool:
        try:
            return type(replayed(course.schedule, self._tasks.run).error) is type(course.error)
        except (Diverged, Unfinished, Stuck):
            return False


def _told(course: CourseOfTest, tried: int, same: int) -> str:
    plural = "" if course.preemptions == 1 else "s"
    left_out = len(course.steps) - STEPS_TOLD
    steps = [f"  {step.actor}  {step.kind} {step.label}".rstrip() for step in course.steps[-STEPS_TOLD:]]
    return "\n".join(
        [
            f"In this order of its tasks, {course.preemptions} preemption{plural}, number {tried}; it fails again in "
            f"{same} of {CONFIRMATIONS} replays:",
            *([f"  … {left_out} steps before"] if left_out > 0 else []),
            *steps,
            f"Again with @recollect.interleaved(schedule={course.schedule!r})",
        ]
    )
