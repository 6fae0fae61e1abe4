"""What Recall promises, on every kind of rows and index."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from recollect import Durability, Message, NotWritten, OutcomeUnknown, Refused, open_store
from recollect.recall import IndexState, Recall, open_recall
from recollect.recall.memory import conversation_id, user_key
from recollect.recall.rows_sqlite import SqliteRows
from tests.disks import BEST
from tests.recall.conftest import Place


def texts(found: object) -> list[str]:
    return [hit.memory.text for hit in found.hits]  # type: ignore[attr-defined]


async def test_a_fact_is_remembered_found_and_put_into_the_context(place: Place) -> None:
    async with place.open() as recall:
        said = Message("user", "Hello! My name is Xiao Li. I live in Shanghai, and I love hiking.")
        remembered = await recall.remember("xiao", [said], session="s1")
        assert [memory.text for memory in remembered.memories] == [
            "The user's name is Xiao Li.",
            "The user lives in Shanghai.",
            "The user likes hiking.",
        ]
        assert remembered.durability is (BEST if place.kind.startswith("sqlite") else Durability.FSYNCED)
        assert remembered.memories[0].message == said.id
        await recall.index_ready()
        found = await recall.search("xiao", "what is my name?", k=1)
        assert texts(found) == ["The user's name is Xiao Li."]
        assert found.method == ("scan" if place.index is None else "index")
        assert found.index_complete == (place.index is not None)
        context = await recall.context("xiao", "what is my name?", budget_tokens=100)
        assert context == "- The user's name is Xiao Li."
        assert await recall.context("xiao", "what is my name?", budget_tokens=3) == ""


async def test_a_new_memory_is_found_before_the_index_has_it(place: Place) -> None:
    async with place.open() as recall:
        await recall.index_ready()
        for number in range(30):
            await recall.add("u", [f"The user's locker number{number} is blue."])
            found = await recall.search("u", f"locker number{number}", k=1)
            assert texts(found) == [f"The user's locker number{number} is blue."]


async def test_another_process_s_memories_are_found(place: Place) -> None:
    async with place.open() as first, place.open() as second:
        await second.index_ready()
        await first.add("u", ["The user plays the cello."])
        assert texts(await second.search("u", "cello")) == ["The user plays the cello."]
        await first.index_ready()
        await second.index_ready()
        assert texts(await second.search("u", "cello")) == ["The user plays the cello."]


async def test_what_is_forgotten_is_gone_everywhere_and_stays_gone(place: Place) -> None:
    async with place.open() as recall, place.open() as other:
        kept = await recall.add("u", ["The user has a cat."], turn="t1")
        gone = await recall.add("u", ["The user has a dog."], turn="t2")
        await recall.index_ready()
        await other.index_ready()
        assert await recall.forget("u", gone.memories[0].sequence) == 1
        assert await recall.forget("u", gone.memories[0].sequence) == 0
        for each in (recall, other):
            assert texts(await each.search("u", "dog", k=5)) == ["The user has a cat."]
            await each.index_ready()
            assert texts(await each.search("u", "dog", k=5)) == ["The user has a cat."]
            assert each.index_state in (IndexState.READY, IndexState.NONE)
        assert (await recall.add("u", ["The user has a dog."], turn="t2")).memories == []
        assert [memory.text for memory in await recall.memories("u")] == ["The user has a cat."]
        more = await recall.add("u", ["The user has a bird."])
        assert more.memories[0].sequence > gone.memories[0].sequence > kept.memories[0].sequence
        assert await recall.forget("u") == 2
        assert await recall.memories("u") == []


async def test_a_retried_turn_is_stored_once(place: Place) -> None:
    async with place.open() as recall:
        first = await recall.add("u", ["one", "two"], turn="t")
        again = await recall.add("u", ["one", "two"], turn="t")
        other = await recall.add("v", ["one"], turn="t")
        assert [m.sequence for m in again.memories] == [m.sequence for m in first.memories]
        assert len(await recall.memories("u")) == 2
        assert len(await recall.memories("v")) == len(other.memories) == 1
        many = await asyncio.gather(*(recall.add("u", ["three"], turn="t3") for _ in range(20)))
        assert len({memory.sequence for each in many for memory in each.memories}) == 1
        assert len(await recall.memories("u")) == 3


async def test_writers_together_get_numbers_of_their_own(place: Place) -> None:
    async with place.open() as recall, place.open() as other:
        both = (recall, other)
        written = await asyncio.gather(
            *(both[n % 2].add("u", [f"fact {n} a", f"fact {n} b"], turn=f"t{n}") for n in range(60))
        )
        by_number = {memory.sequence: memory.text for each in written for memory in each.memories}
        assert len(by_number) == 120
        listed = {memory.sequence: memory.text for memory in await recall.memories("u", limit=500)}
        assert listed == by_number


HOSTILE = (
    "alice",
    "Alice",
    "alice ",
    "alice\0",
    "ali\0ce",
    "alice' OR '1'='1",
    'alice"}, "$or": [{"user": {"$ne": ""}}',
    "%",
    "_",
    "*",
    "../alice",
    "alice:1",
    "1:alice",
    "marker",
    "\udc80",
    "é",
    "e\u0301",
    "a" * 5000,
)


async def test_hostile_users_never_see_each_other(place: Place) -> None:
    async with place.open() as recall:
        for number, user in enumerate(HOSTILE):
            await recall.add(user, [f"The user's secret code is zebra{number}."])
        for wait_for_index in (False, True):
            if wait_for_index:
                await recall.index_ready()
            for number, user in enumerate(HOSTILE):
                expected = [f"The user's secret code is zebra{number}."]
                assert texts(await recall.search(user, "secret code zebra", k=50)) == expected
                assert [memory.text for memory in await recall.memories(user)] == expected
        stranger = await recall.memories(HOSTILE[0])
        for user in HOSTILE[1:]:
            assert await recall.forget(user, stranger[0].sequence) == 0
        assert await recall.forget(HOSTILE[5]) == 1
        assert len(await recall.memories(HOSTILE[0])) == 1


def test_no_two_conversations_share_an_id() -> None:
    pairs = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("1:a", "b"),
        ("a", "1:b"),
        ("", "a"),
        ("a", ""),
        ("11", "a"),
        ("1", "1a"),
    ]
    assert len({conversation_id(user, session) for user, session in pairs}) == len(pairs)


async def test_what_cannot_be_asked_is_refused(place: Place) -> None:
    async with place.open() as recall:
        with pytest.raises(Refused, match="k: 1 to 10000, not 0"):
            await recall.search("u", "x", k=0)
        with pytest.raises(Refused, match="user: an id of text"):
            await recall.add("", ["x"])


async def test_a_user_with_many_memories_is_forgotten_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.recall.rows_sqlite.FORGOTTEN_AT_ONCE", 10)
    async with open_recall(f"sqlite:///{tmp_path}/memory.db") as recall:
        for count in (0, 9, 10, 95):
            await recall.add("xiao", [f"fact {number}" for number in range(count)])
            await recall.add("other", ["kept"])
            assert await recall.forget("xiao") == count
            assert await recall.memories("xiao") == []
        assert len(await recall.memories("other")) == 4
        changes = await recall.rows.changes(0, 1_000)
        assert [change.at for change in changes] == sorted({change.at for change in changes})
        await recall.add("xiao", [f"fact {number}" for number in range(95)])
        assert isinstance(recall.rows, SqliteRows)
        recall.rows._timeout_s = 0.0
        with pytest.raises(OutcomeUnknown, match="10 memories are forgotten, and there are more"):
            await recall.forget("xiao")
        recall.rows._timeout_s = 10.0
        assert await recall.forget("xiao") == 85


@pytest.mark.parametrize("number", [2**53, 2**63 - 1, 2**63, 2**70, 10**400])
async def test_any_number_may_be_asked_for_and_locks_nothing(place: Place, number: int) -> None:
    async with place.open() as recall:
        await recall.add("xiao", ["a cat"])
        assert await recall.forget("xiao", number) == 0
        assert [memory.text for memory in await recall.memories("xiao", before=number)] == ["a cat"]
        assert [memory.text for memory in await recall.memories("xiao", limit=number)] == ["a cat"]
        assert await recall.memories("xiao", before=0) == []
        with pytest.raises(Refused, match="sequence"):
            await recall.forget("xiao", -number)
        with pytest.raises(Refused, match="before"):
            await recall.memories("xiao", before=-number)
        # Below the check, where a driver raises what it likes in the middle of a transaction.
        with contextlib.suppress(NotWritten):
            assert await recall.rows.forget(user_key("xiao"), [number]) == 0
        async with place.open(timeout_s=2.0) as other:
            await other.add("xiao", ["a dog"])
        await recall.rows.probe()
        await recall.add("xiao", ["a bird"])
        found = [memory.text for memory in await recall.memories("xiao")]
        assert found == ["a bird", "a dog", "a cat"]


async def test_any_text_comes_back_as_it_was(place: Place) -> None:
    facts = ["nul \0 inside", "lone \ud800 surrogate", "🎉", "   ", "x" * 100_000, "名前は李です"]
    async with place.open() as recall:
        await recall.add("u", facts)
        await recall.index_ready()
        assert [memory.text for memory in reversed(await recall.memories("u"))] == facts
        assert texts(await recall.search("u", "李", k=1)) == ["名前は李です"]


async def test_concurrent_summarisers_never_lose_or_repeat_a_message(place: Place, tmp_path: object) -> None:
    """Two processes append and summarise one conversation at once; every message becomes a fact exactly once."""
    url = place.rows
    async with open_store(url) as one, open_store(url) as two:
        async with (
            open_recall(url, conversations=one) as first,
            open_recall(url, conversations=two) as second,
        ):

            async def talk(recall: Recall, name: str) -> None:
                for number in range(12):
                    said = Message("user", f"My {name} number{number} is ready.")
                    await recall.remember("u", [said], session="s", turn=f"{name}{number}")

            await asyncio.gather(*(talk(recall, n) for recall, n in ((first, "red"), (second, "blue")) * 1))
            await asyncio.gather(first.summarise("u", "s"), second.summarise("u", "s"))
            listed = [memory.text for memory in await first.memories("u")]
            assert sorted(listed) == sorted(
                f"The user's {name} number{number} is ready."
                for name in ("red", "blue")
                for number in range(12)
            )
            assert len(await one.history(conversation_id("u", "s"))) == 24
