"""What cannot be kept is refused before the first of several writes; what a model says is no reason to refuse."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recollect import Message, Refused, Store, open_store
from recollect.recall import Recall, open_recall
from tests.message.test_values import Text

SAID = [Message("user", "I live in Oslo")]
HALVES = "\ud83d\ude00"


class Halves:
    """A model whose answers hold the halves of a pair as two characters."""

    async def complete(self, messages: Sequence[Message]) -> str:
        return f"The user likes {HALVES} and \ud800."


@pytest.mark.parametrize(
    ("user", "session", "turn", "words"),
    [
        ("", "s", "t", "user: an id of text"),
        (None, "s", "t", "user: text, not None"),
        (Text("u"), "s", "t", "user: text, not"),
        ("u", 7, "t", "session: text, not 7"),
        ("u", HALVES, "t", "session: two halves of a surrogate pair"),
        ("u", "s", 7, "turn: text, not 7"),
        ("u", "s", [7], "turn: text, not a value of type list"),
    ],
)
async def test_ids_are_checked_before_the_conversation_is_written(
    tmp_path: Path, user: Any, session: Any, turn: Any, words: str
) -> None:
    address = f"sqlite:///{tmp_path}/memory.db"
    async with (
        open_store(address) as conversations,
        open_recall(address, conversations=conversations) as recall,
    ):
        with pytest.raises(Refused, match=words):
            await recall.remember(user, SAID, session=session, turn=turn)
        with pytest.raises(Refused, match=words):
            await recall.add(user, ["a fact"], session=session, turn=turn)
        assert await everything(conversations, recall) == ([], (0, 0))


async def everything(conversations: Store, recall: Recall) -> tuple[list[str], tuple[int, int]]:
    return [name async for name in conversations.sessions()], await recall.rows.totals()


async def test_a_model_that_says_halves_of_a_pair_does_not_stop_the_summary(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/memory.db"
    async with (
        open_store(address) as conversations,
        open_recall(address, conversations=conversations, llm=Halves()) as recall,
    ):
        remembered = await recall.remember("u", SAID, session="s", turn="t")
        assert [memory.text for memory in remembered.memories] == ["The user likes 😀 and \ud800."]
        assert [memory.text for memory in await recall.memories("u")] == ["The user likes 😀 and \ud800."]


async def test_searches_with_other_types(tmp_path: Path) -> None:
    async with open_recall(f"sqlite:///{tmp_path}/memory.db") as recall:
        for query in (None, 7, b"x", Text("x")):
            with pytest.raises(Refused, match="query: text, not"):
                await recall.search("u", query)  # type: ignore[arg-type]
        for k in (0, -1, 1.5, None, "3", 10**400, 10**5000):
            with pytest.raises(Refused, match="k: "):
                await recall.search("u", "x", k)  # type: ignore[arg-type]
        with pytest.raises(Refused, match="facts: text, not 7"):
            await recall.add("u", ["a", 7])  # type: ignore[list-item]
        assert await recall.rows.totals() == (0, 0)
