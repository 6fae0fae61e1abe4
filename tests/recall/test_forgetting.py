"""A user is forgotten while a summary of the conversation is being made: nothing of it comes back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import asyncpg
import pytest

from recollect import Message, open_store
from recollect.composite import conversation_id
from recollect.recall import Recall
from recollect.recall.memory import user_key
from recollect.recall.recall import _digest
from recollect.recall.rows import Cursor, Draft, MemoryWrite
from recollect.recall.rows_postgres import _write_with_cursor
from recollect.store import Durability
from recollect.verify.engines import Engine
from tests.recall.conftest import Place, place_of

USER, SESSION = "xiao", "s"
CONVERSATION = conversation_id(USER, SESSION)
DEADLINE_S = 60.0


class Interrupted:
    """A model that finds all of a message worth keeping. While it reads the first one, something happens."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._meanwhile: list[Callable[[], Awaitable[object]]] = [meanwhile]

    async def complete(self, messages: Sequence[Message]) -> str:
        if self._meanwhile:
            await self._meanwhile.pop()()
        return messages[-1].text


@pytest.fixture
async def rows(request: pytest.FixtureRequest, tmp_path: Path, engine_of: Callable[[str], Engine]) -> Place:
    place = await place_of(getattr(request, "param", "sqlite"), engine_of, tmp_path)
    place.index = None
    return place


async def texts(recall: Recall) -> list[str]:
    return [memory.text for memory in await recall.memories(USER)]


@pytest.mark.parametrize("rows", ["sqlite", "postgres+pgvector"], indirect=True)
async def test_a_forgotten_conversation_adds_nothing(rows: Place) -> None:
    async with open_store(rows.rows) as store, rows.open() as beside:

        async def forget_everything() -> None:
            await store.forget(CONVERSATION)
            assert await beside.forget(USER) == 0

        async with rows.open(conversations=store, llm=Interrupted(forget_everything)) as recall:
            remembered = await recall.remember(USER, [Message("user", "a cat")], session=SESSION)
            assert remembered.memories == []
            assert await texts(recall) == []
            await recall.remember(USER, [Message("user", "a dog")], session=SESSION)
            assert await texts(recall) == ["a dog"], "what is said later is remembered"


async def test_a_conversation_that_stays_is_summarised_all_the_same(rows: Place) -> None:
    async with open_store(rows.rows) as store, rows.open() as beside:
        await beside.add(USER, ["a bird"])
        model = Interrupted(lambda: beside.forget(USER))
        async with rows.open(conversations=store, llm=model) as recall:
            await recall.remember(USER, [Message("user", "a cat")], session=SESSION)
            assert await texts(recall) == ["a cat"]


async def test_forgetting_another_user_or_one_memory_disturbs_nobody(rows: Place) -> None:
    async with open_store(rows.rows) as store, rows.open() as beside:
        [bird] = (await beside.add(USER, ["a bird"])).memories
        for other, number in (("another", None), (USER, bird.sequence)):
            model = Interrupted(lambda other=other, number=number: beside.forget(other, number))  # type: ignore[misc]
            async with rows.open(conversations=store, llm=model) as recall:
                before = await recall.rows.summarised(user_key(USER), _digest(CONVERSATION))
                await recall.remember(USER, [Message("user", f"seen by {other}")], session=SESSION)
                after = await recall.rows.summarised(user_key(USER), _digest(CONVERSATION))
                assert (before[1], after[1]) == (0, 0)


async def test_postgres_forgets_what_was_committed_while_it_waited(
    tmp_path: Path, engine_of: Callable[[str], Engine]
) -> None:
    place = await place_of("postgres+pgvector", engine_of, tmp_path)
    place.index = None
    async with place.open() as recall:
        [kept] = (await recall.add("another", ["a bird"])).memories
        [row] = await recall.rows.fetch(user_key("another"), [kept.sequence])
        write = MemoryWrite(user_key(USER), [Draft(row.record, row.vector)], 1, cursor=Cursor(b"c", 0, 1, 0))
        writer = await asyncpg.connect(place.rows)
        try:
            transaction = writer.transaction()
            await transaction.start()
            await _write_with_cursor(writer, write, Durability.WRITTEN)
            forgetting = asyncio.create_task(recall.forget(USER))
            async with asyncio.timeout(DEADLINE_S):
                while not await writer.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
                ):
                    assert not forgetting.done(), "it does not wait for the writer"
                    await asyncio.sleep(0.01)
            await transaction.commit()
            assert await forgetting == 1
        finally:
            await writer.close()
        assert await texts(recall) == []
