"""How callers go on once a wire has brought their answers."""

import asyncio
from collections.abc import Iterator
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
    answer: Resumed[int] = Resumed()
    answer.begin(asyncio.get_running_loop())
    return answer


async def waits(answer: Resumed[int], told: list[int]) -> None:
    told.append(await answer)


def from_the_loop(*answers: Resumed[int]) -> None:
    """As a wire does: no task is running then."""
    asyncio.get_running_loop().call_soon(resume, answers)


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


def test_an_interrupt_in_one_of_them_leaves_no_other_waiting() -> None:
    told: list[int] = []
    tasks: list[asyncio.Task[None]] = []

    async def interrupted(answer: Resumed[int]) -> None:
        await answer
        raise SystemExit(3)

    async def main() -> None:
        answers = [asked() for _ in range(3)]
        works = (waits(answers[0], told), interrupted(answers[1]), waits(answers[2], told))
        tasks.extend(map(asyncio.create_task, works))
        await asyncio.sleep(0)
        for answer in answers:
            answer.value = 1
        from_the_loop(*answers)
        await asyncio.sleep(1)

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(SystemExit):
            loop.run_until_complete(main())
        loop.run_until_complete(tasks[2])
        assert told == [1, 1]
        with pytest.raises(SystemExit):
            tasks[1].result()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


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
