"""Turns of long-term memory: stored once and whole, never in another's place, and only as what they were."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import asyncpg
import pytest

from recollect import Message, TurnReused
from recollect.recall.memory import Remembered
from recollect.recall.rows_postgres import PostgresRows
from recollect.recall.rows_sqlite import SqliteRows
from recollect.verify.engines import Engine
from tests.recall.conftest import Place, place_of
from tests.stores.postgres_place import Connection


class Wavering:
    """A model that finds one fact more each time it is asked."""

    def __init__(self) -> None:
        self._asked = 0

    async def complete(self, messages: Sequence[Message]) -> str:
        self._asked += 1
        return "\n".join(f"The user said it in {n} words." for n in range(1, self._asked + 1))


async def test_sessions_and_turns_are_not_glued_into_each_other(place: Place) -> None:
    async with place.open() as recall:
        pairs = [("a\0b", "c"), ("a", "b\0c"), ("a~1b", "c"), ("a", "b~1c"), ("a", "c"), ("", "a\0c")]
        for number, (session, turn) in enumerate(pairs):
            for _ in range(2):
                await recall.add("u", [f"fact {number}"], session=session, turn=turn)
        found = await recall.memories("u")
        assert sorted(memory.text for memory in found) == [f"fact {number}" for number in range(len(pairs))]


async def test_a_known_turn_with_other_facts_is_refused(place: Place) -> None:
    async with place.open() as recall:
        first = await recall.add("u", ["one", "two"], turn="t")
        for other in (["one"], ["two", "one"], ["one", "two", "three"], ["other", "two"]):
            with pytest.raises(TurnReused, match="'t'"):
                await recall.add("u", other, turn="t")
        assert await recall.add("u", ["one", "two"], turn="t") == first
        assert (await recall.add("another", ["one"], turn="t")).memories
        await recall.forget("u", first.memories[0].sequence)
        left = await recall.add("u", ["one", "two"], turn="t")
        assert left.memories == first.memories[1:], "what was forgotten does not come back"
        assert [memory.text for memory in await recall.memories("u")] == ["two"]


async def test_of_turns_that_come_at_once_one_is_stored_whole(place: Place) -> None:
    """Of one batch, of several, and of two that have the memory open."""
    async with place.open() as recall, place.open() as beside:
        lists = [[f"{size} facts: {n}" for n in range(size)] for size in (1, 2, 3)]
        outcomes = await asyncio.gather(
            *(
                opened.add("u", facts, turn=f"t{n}")
                for n in range(10)
                for facts in lists
                for opened in (recall, beside)
            ),
            return_exceptions=True,
        )
        for n in range(10):
            mine = outcomes[6 * n : 6 * n + 6]
            kept = [outcome for outcome in mine if isinstance(outcome, Remembered)]
            assert len(kept) == 2, mine
            assert kept[0] == kept[1]
            assert [memory.text for memory in kept[0].memories] in lists
            assert sum(isinstance(outcome, TurnReused) for outcome in mine) == 4
        acknowledged = [each for each in outcomes if isinstance(each, Remembered)]
        numbers = {memory.sequence for each in acknowledged for memory in each.memories}
        assert {memory.sequence for memory in await recall.memories("u")} == numbers


async def test_a_retried_turn_gives_what_is_stored_whatever_the_model_finds_now(place: Place) -> None:
    async with place.open(llm=Wavering()) as recall:
        said = [Message("user", "I have a cat")]
        first = await recall.remember("u", said, turn="t")
        again = await recall.remember("u", [Message("user", "I have a cat")], turn="t")
        assert again == first
        assert [memory.text for memory in await recall.memories("u")] == ["The user said it in 1 words."]
        with pytest.raises(TurnReused):
            await recall.remember("u", [Message("user", "I have a dog")], turn="t")


async def test_turns_from_before_there_were_fingerprints_are_retries(place: Place) -> None:
    async with place.open() as recall:
        first = await recall.add("u", ["one"], turn="t")
        if isinstance(recall.rows, SqliteRows):
            await recall.rows._submit(
                lambda connection: connection.execute("DROP TABLE recall_turns").rowcount
            )
        else:
            assert isinstance(recall.rows, PostgresRows)
            await recall.rows._send("DROP TABLE recall_turns")
    async with place.open() as recall:
        assert await recall.add("u", ["other"], turn="t") == first
        await recall.add("u", ["two"], turn="u")
        with pytest.raises(TurnReused):
            await recall.add("u", ["three"], turn="u")


async def test_turns_that_wait_for_each_other_in_the_engine_are_not_mixed(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    """Both statements have begun, and see nothing of each other, when the counter they wait for becomes free."""
    place = await place_of("postgres+pgvector", engine_of, tmp_path)
    async with place.open() as recall, place.open() as beside:
        direct = await asyncpg.connect(place.rows)
        try:
            holding = direct.transaction()
            await holding.start()
            await direct.execute("UPDATE recall_counter SET last = last")
            adds: list[asyncio.Task[Remembered]] = []
            for opened, facts in ((recall, ["one"]), (beside, ["two", "three", "four"])):
                adds.append(asyncio.create_task(opened.add("u", facts, turn="t")))
                await until_waiting(direct, len(adds))  # in this order, so that the larger one comes second
            await holding.commit()
            outcomes = await asyncio.gather(*adds, return_exceptions=True)
        finally:
            await direct.close()
        kept = [memory.text for memory in reversed(await recall.memories("u"))]
        assert kept in (["one"], ["two", "three", "four"])
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Remembered", "TurnReused"]


async def until_waiting(direct: Connection, count: int) -> None:
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND query LIKE '%recall_counter%'"
    )
    deadline = asyncio.get_running_loop().time() + 20
    while await direct.fetchval(waiting) < count:
        assert asyncio.get_running_loop().time() < deadline, "a statement never waited for the counter"
        await asyncio.sleep(0.01)
        await direct.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees one for all
