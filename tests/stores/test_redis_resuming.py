"""How callers go on once a wire has brought their answers."""

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, cast

import pytest

from recollect import Message, open_store
from recollect.stores.redis.resuming import Resumed, resume
from recollect.verify.engines import Engine
from tests.contract.reading import texts
from tests.stores.redis_places import address, started


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with started("redis", "none") as running:
        yield running


def asked() -> Resumed[int]:
    return asked_on(asyncio.get_running_loop())


async def waits(answer: Resumed[int], told: list[int]) -> None:
    told.append(await answer)


def from_the_loop(*answers: Resumed[int]) -> None:
    """As a wire does: no task is running then."""
    asyncio.get_running_loop().call_soon(resume, answers)


def asked_on(loop: asyncio.AbstractEventLoop) -> Resumed[int]:
    answer: Resumed[int] = Resumed()
    answer.begin(loop)
    return answer


Interrupt = Callable[[Resumed[int]], Coroutine[Any, Any, None]]


@contextlib.contextmanager
def interrupted_loop() -> Iterator[tuple[asyncio.AbstractEventLoop, Interrupt]]:
    """A loop that is left by a `SystemExit` of who waits with `interrupt`, and what goes on after it."""

    async def interrupt(answer: Resumed[int]) -> None:
        await answer
        raise SystemExit(3)

    loop = asyncio.new_event_loop()
    try:
        yield loop, interrupt
    finally:
        loop.run_until_complete(heard(loop))
        loop.close()


async def heard(loop: asyncio.AbstractEventLoop) -> None:
    """Ends the tasks that are left, and takes note of what they raised."""
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_whoever_waits_goes_on_before_anything_else() -> None:
    told: list[int] = []
    answers = [asked() for _ in range(3)]
    tasks = [asyncio.create_task(waits(answer, told)) for answer in answers]
    await asyncio.sleep(0)
    for number, answer in enumerate(answers):
        answer.value = number
    loop = asyncio.get_running_loop()
    loop.call_soon(resume, answers)
    loop.call_soon(told.append, 99)
    await asyncio.gather(*tasks)
    assert told == [0, 1, 2, 99]


async def test_several_who_wait_for_one_answer_go_on_before_anything_else() -> None:
    told: list[int] = []
    answer = asked()
    tasks = [asyncio.create_task(waits(answer, told)) for _ in range(3)]
    await asyncio.sleep(0)
    answer.value = 1
    from_the_loop(answer)
    asyncio.get_running_loop().call_soon(told.append, 99)
    await asyncio.gather(*tasks)
    assert told == [1, 1, 1, 99]


async def test_while_a_task_runs_they_wait_for_the_next_turn() -> None:
    told: list[int] = []
    answer = asked()
    task = asyncio.create_task(waits(answer, told))
    await asyncio.sleep(0)
    answer.value = 1
    resume([answer])
    assert told == []
    await task
    assert told == [1]


async def test_what_was_answered_before_it_is_awaited_is_there() -> None:
    answer = asked()
    answer.value = 7
    resume([answer])
    assert await answer == 7
    assert answer.done()


async def test_a_caller_keeps_its_context_and_its_task() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="nobody's")
    answer = asked()

    async def caller() -> tuple[str, object]:
        variable.set("mine")
        await answer
        return variable.get(), asyncio.current_task()

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    answer.value = 1
    from_the_loop(answer)
    assert await task == ("mine", task)


async def test_an_error_is_raised_and_a_later_answer_changes_nothing() -> None:
    answer = asked()
    told: list[int] = []
    task = asyncio.create_task(waits(answer, told))
    await asyncio.sleep(0)
    answer.fail(ValueError("first"))
    answer.fail(ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        await task
    with pytest.raises(ValueError, match="first"):
        await answer


async def test_a_caller_that_is_cancelled_is_woken_and_its_answer_is_closed() -> None:
    answer = asked()
    task = asyncio.create_task(waits(answer, []))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not answer.is_open
    assert not answer.cancel()


async def test_a_caller_that_is_cancelled_by_one_who_goes_on_before_it_ends() -> None:
    first, second = asked(), asked()
    tasks: list[asyncio.Task[None]] = []
    told: list[int] = []

    async def cancels() -> None:
        await first
        tasks[1].cancel()

    tasks += [asyncio.create_task(cancels()), asyncio.create_task(waits(second, told))]
    await asyncio.sleep(0)
    first.value = second.value = 1
    from_the_loop(first, second)
    await tasks[0]
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert told == []


async def test_what_a_caller_was_cancelled_with_reaches_it() -> None:
    for said in ((), ("enough",)):
        task = asyncio.create_task(waits(asked(), []))
        await asyncio.sleep(0)
        task.cancel(*said)
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        assert raised.value.args == said


async def test_all_are_answered_before_the_first_goes_on() -> None:
    """It may close the store, or cancel the others: neither has to wait for them, nor takes their answers away."""
    first, second = asked(), asked()
    seen: list[object] = []

    async def looks() -> None:
        await first
        seen.extend([second.done(), second.cancel(), second.result()])

    task = asyncio.create_task(looks())
    await asyncio.sleep(0)
    first.value, second.value = 1, 2
    from_the_loop(first, second)
    await task
    assert seen == [True, False, 2]
    assert await second == 2


async def test_there_is_no_result_before_the_answer() -> None:
    with pytest.raises(asyncio.InvalidStateError):
        asked().result()


async def test_what_is_there_is_not_waited_for() -> None:
    answer = asked()
    answer.value = 3
    resume([answer])
    with pytest.raises(StopIteration) as ended:
        answer.__await__().send(None)
    assert ended.value.value == 3


async def test_an_answer_that_nobody_waits_for_keeps_no_other_from_going_on() -> None:
    told: list[int] = []
    ignored, answer = asked(), asked()
    task = asyncio.create_task(waits(answer, told))
    await asyncio.sleep(0)
    ignored.value, answer.value = 1, 2
    loop = asyncio.get_running_loop()
    from_the_loop(ignored, answer)
    loop.call_soon(told.append, 99)
    await task
    await asyncio.sleep(0)
    assert told == [2, 99]


def test_whoever_asks_again_is_not_woken_by_the_first_answer() -> None:
    """With the same write, as where a server says that another one has the session; even if the next is interrupted."""
    told: list[int] = []

    async def again(answer: Resumed[int]) -> None:
        told.append(await answer)
        answer.begin(asyncio.get_running_loop())
        told.append(await answer)

    with interrupted_loop() as (loop, interrupt):
        first, second, third = (asked_on(loop) for _ in range(3))
        tasks = [loop.create_task(work) for work in (again(first), interrupt(second), waits(third, told))]
        loop.run_until_complete(asyncio.sleep(0))
        for answer in (first, second, third):
            answer.value = 1
        loop.call_soon(resume, [first, second, third])
        with pytest.raises(SystemExit):
            loop.run_forever()
        loop.run_until_complete(tasks[2])
        assert told == [1, 1]
        first.value = 2
        loop.call_soon(resume, [first])
        loop.run_until_complete(tasks[0])
        assert told == [1, 1, 2]


async def test_an_error_is_forgotten_when_it_is_asked_again() -> None:
    answer = asked()
    answer.fail(ValueError("the first time"))
    with pytest.raises(ValueError, match="the first time"):
        await answer
    answer.begin(asyncio.get_running_loop())
    assert not answer.done()
    answer.value = 5
    resume([answer])
    assert await answer == 5


async def test_a_time_limit_ends_the_wait() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asked()


async def test_several_can_wait_and_one_can_stop_waiting() -> None:
    answer = asked()
    told: list[int] = []
    tasks = [asyncio.create_task(waits(answer, told)) for _ in range(3)]
    done, _ = await asyncio.wait([cast(Any, answer)], timeout=0.01)
    assert not done
    answer.value = 4
    from_the_loop(answer)
    done, _ = await asyncio.wait([cast(Any, answer)])
    await asyncio.gather(*tasks)
    assert told == [4, 4, 4]
    assert {each.result() for each in done} == {4}


HOW_THEY_GO_ON: dict[str, Callable[[Resumed[int]], None]] = {
    "answered": from_the_loop,
    "answered while a task runs": lambda answer: resume([answer]),
    "failed": lambda answer: answer.fail(ValueError("no")),
    "cancelled": lambda answer: None if answer.cancel() else pytest.fail("it was open"),
}


@pytest.mark.parametrize("how", HOW_THEY_GO_ON)
@pytest.mark.parametrize("count", [1, 3])
async def test_each_goes_on_once_and_in_its_own_context(how: str, count: int) -> None:
    variable: ContextVar[int] = ContextVar("variable", default=-1)
    answer = asked()
    seen: list[tuple[int, int]] = []

    async def caller(number: int) -> None:
        variable.set(number)
        with contextlib.suppress(ValueError, asyncio.CancelledError):
            await answer
        seen.append((number, variable.get()))

    tasks = [asyncio.create_task(caller(number)) for number in range(count)]
    await asyncio.sleep(0)
    answer.value = 1
    HOW_THEY_GO_ON[how](answer)
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert seen == [(number, number) for number in range(count)]


@pytest.mark.parametrize(
    "given", [True, False], ids=["in a context that is given", "in that of whoever adds it"]
)
@pytest.mark.parametrize("when", ["before the answer", "as the second", "after the answer"])
async def test_a_callback_is_called_once_in_its_context(given: bool, when: str) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="another's")
    called: list[tuple[object, str]] = []
    answer = asked()
    answer.value = 1

    def callback(answered: object) -> None:
        called.append((answered, variable.get()))

    def add() -> None:
        variable.set("its own")
        if not given:
            answer.add_done_callback(callback)

    if when == "as the second":
        answer.add_done_callback(lambda answered: None)
    if when == "after the answer":
        resume([answer])
    context = contextvars.copy_context()
    context.run(add)
    if given:
        answer.add_done_callback(callback, context=context)
    assert called == []
    if when != "after the answer":
        from_the_loop(answer)
    for _ in range(3):
        await asyncio.sleep(0)
    assert called == [(answer, "its own")]
    assert answer.remove_done_callback(callback) == 0, "nothing is kept of it"


async def test_a_callback_that_is_removed_is_not_called() -> None:
    """And those that stay are, each in its context, whichever came first."""
    variable: ContextVar[str] = ContextVar("variable", default="another's")
    names = ["first", "second", "third"]

    for removed in ([], ["first"], ["second"], ["third"], ["first", "second"], names):
        called: list[tuple[str, str]] = []
        answer = asked()
        answer.value = 1

        def adds(
            name: str, answer: Resumed[int] = answer, called: list[Any] = called
        ) -> Callable[[Any], None]:
            def callback(answered: object) -> None:
                called.append((name, variable.get()))

            variable.set(name)
            answer.add_done_callback(callback)
            return callback

        callbacks = {name: contextvars.copy_context().run(adds, name) for name in names}
        for name in removed:
            assert answer.remove_done_callback(callbacks[name]) == 1
            assert answer.remove_done_callback(callbacks[name]) == 0
        from_the_loop(answer)
        for _ in range(3):
            await asyncio.sleep(0)
        assert called == [(name, name) for name in names if name not in removed]


async def test_a_callback_that_was_added_twice_is_removed_twice() -> None:
    called: list[object] = []
    answer = asked()
    answer.value = 1
    for _ in range(2):
        answer.add_done_callback(called.append)
    assert answer.remove_done_callback(called.append) == 2
    answer.add_done_callback(lambda answered: None)
    from_the_loop(answer)
    await asyncio.sleep(0)
    assert called == []


def test_an_interrupt_in_one_of_them_leaves_no_other_waiting() -> None:
    told: list[int] = []
    with interrupted_loop() as (loop, interrupt):
        answers = [asked_on(loop) for _ in range(3)]
        works = (waits(answers[0], told), interrupt(answers[1]), waits(answers[2], told))
        tasks = list(map(loop.create_task, works))
        loop.run_until_complete(asyncio.sleep(0))
        for answer in answers:
            answer.value = 1
        loop.call_soon(resume, answers)
        with pytest.raises(SystemExit):
            loop.run_forever()
        loop.run_until_complete(tasks[2])
        assert told == [1, 1]


async def test_a_caller_that_goes_on_may_close_the_store(engine: Engine) -> None:
    """The others, answered in the same batch or not sent yet, get what is theirs."""
    url = address(engine)
    store = await open_store(url)

    async def closes() -> None:
        await store.append("s0", [Message("user", "x")])
        await store.close()

    others = (store.append(f"s{number}", [Message("user", "x")]) for number in range(1, 12))
    _, *found = await asyncio.gather(closes(), *others, return_exceptions=True)
    async with open_store(url) as again:
        for number, answer in enumerate(found, 1):
            assert await texts(again, f"s{number}") == ([] if isinstance(answer, Exception) else ["x"])
