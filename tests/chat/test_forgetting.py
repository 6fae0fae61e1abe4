"""A conversation is forgotten while one of its messages is being stored or answered: nothing of it comes back, and the
sender is told what became of the message."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect import Message
from recollect.chat.app import create_app
from recollect.chat.service import ChatService
from recollect.chat.settings import ChatSettings
from recollect.recall.llm import SUMMARISE
from recollect.store import Receipt

EVERYTHING = ("DELETE", "/everything", {"user": "xiao"})
SESSION = ("DELETE", "/history", {"user": "xiao", "session": "s"})
EITHER = pytest.mark.parametrize("forget", [EVERYTHING, SESSION], ids=["everything", "session"])
Forget = tuple[str, str, dict[str, str]]


class Interrupted:
    """A model that repeats what it is told. Something happens while it looks for facts, or while it answers."""

    label = "interrupted"

    def __init__(self, while_: str, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._while, self._meanwhile = while_, meanwhile

    async def complete(self, messages: Sequence[Message]) -> str:
        doing = "summarising" if messages[0].text == SUMMARISE else "answering"
        if doing == self._while:
            await self._meanwhile()
        return messages[-1].text


class Talk:
    """A chat in this process."""

    def __init__(self, client: httpx.AsyncClient, service: ChatService) -> None:
        self.client, self.service = client, service

    async def ask(self, method: str, path: str, params: dict[str, str]) -> Any:
        answer = await self.client.request(method, path, params=params)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def say(self, **fields: Any) -> httpx.Response:
        body = {"user": "xiao", "session": "s", "message": "a cat", "turn": "t", **fields}
        return await self.client.post("/chat", json=body)

    async def left(self) -> tuple[list[str], list[str], list[str]]:
        """What is remembered, what was said, and which conversations there are."""
        memories = await self.ask("GET", "/memories", {"user": "xiao"})
        history = await self.ask("GET", "/history", {"user": "xiao", "session": "s"})
        conversations = await self.ask("GET", "/conversations", {"user": "xiao"})
        return (
            [each["text"] for each in memories],
            [each["text"] for each in history],
            [each["session"] for each in conversations],
        )


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    memory = f"sqlite:///{tmp_path}/data/memory.db"
    app = create_app(ChatSettings(memory=memory, index="none", allow_ephemeral=True))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield Talk(client, app.state.service)


def told_forgotten(answer: httpx.Response) -> None:
    assert answer.status_code == 409, answer.text
    told = answer.json()
    assert told["error"] == "turn-forgotten"
    assert told["detail"].startswith("turn 't' was stored, and its conversation has been forgotten since")
    assert "nothing was written" not in told["detail"]


async def test_while_facts_are_looked_for(talk: Talk) -> None:
    talk.service.recall.llm = Interrupted("summarising", lambda: talk.ask(*EVERYTHING))
    told_forgotten(await talk.say())
    assert await talk.left() == ([], [], [])
    told_forgotten(await talk.say())
    assert await talk.left() == ([], [], [])


async def test_while_facts_are_looked_for_in_a_session_that_is_no_longer_listed(talk: Talk) -> None:
    async def forget_twice() -> None:
        await talk.ask(*SESSION)
        await talk.ask(*EVERYTHING)

    talk.service.recall.llm = Interrupted("summarising", forget_twice)
    told_forgotten(await talk.say())
    assert await talk.left() == ([], [], [])


@EITHER
async def test_while_it_is_answered(talk: Talk, forget: Forget) -> None:
    talk.service.recall.llm = Interrupted("answering", lambda: talk.ask(*forget))
    told_forgotten(await talk.say())
    assert await talk.left() == ([] if forget is EVERYTHING else ["a cat"], [], [])


async def test_while_it_is_answered_in_pieces(talk: Talk) -> None:
    talk.service.recall.llm = Interrupted("answering", lambda: talk.ask(*EVERYTHING))
    events = (await talk.say(stream=True)).text.strip().split("\n\n")
    names = [event.split("\n")[0] for event in events]
    assert (names[0], names[-1]) == ("event: remembered", "event: failed")
    assert json.loads(events[-1].split("data: ")[1])["error"] == "turn-forgotten"
    assert await talk.left() == ([], [], [])


@EITHER
async def test_just_before_the_answer_is_stored(
    talk: Talk, forget: Forget, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = talk.service.store.append

    async def late(session: str, messages: Sequence[Message], **options: Any) -> Receipt:
        if messages[0].role == "assistant":
            await talk.ask(*forget)
        return await append(session, messages, **options)

    monkeypatch.setattr(talk.service.store, "append", late)
    told_forgotten(await talk.say())
    assert await talk.left() == ([], [], [])
    monkeypatch.undo()
    again = await talk.say(turn="u")
    assert again.status_code == 200, "the conversation goes on"
    assert len((await talk.left())[1]) == 2
