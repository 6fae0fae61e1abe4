"""Turns of the chat, over real sockets: each message is stored or refused, and each retry gets its own answer."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect import Message, open_store
from recollect.chat.app import create_app
from recollect.chat.service import ChatService
from recollect.chat.settings import ChatSettings
from recollect.composite import conversation_id
from recollect.recall.llm import SUMMARISE
from tests.chat.serving import listening

Serve = Callable[..., AbstractAsyncContextManager[tuple[httpx.AsyncClient, ChatService]]]


class Changing:
    """A model that never gives the same answer twice, and lets others run while it thinks."""

    label = "changing"

    def __init__(self) -> None:
        self._answers = itertools.count(1)

    async def complete(self, messages: Sequence[Message]) -> str:
        if messages[0].text == SUMMARISE:
            return "none"
        await asyncio.sleep(0.001)
        return f"answer {next(self._answers)} to {messages[-1].text}"


class InPieces(Changing):
    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        for word in (await self.complete(messages)).split(" "):
            await asyncio.sleep(0)
            yield f"{word} "


@pytest.fixture
def settings(tmp_path: Path) -> ChatSettings:
    return ChatSettings(memory=f"sqlite:///{tmp_path}/data/memory.db", index="none", allow_ephemeral=True)


@pytest.fixture
def serve(settings: ChatSettings) -> Serve:
    @asynccontextmanager
    async def start(llm: Changing | None = None) -> AsyncIterator[tuple[httpx.AsyncClient, ChatService]]:
        app = create_app(settings)
        async with listening(app) as port:
            service: ChatService = app.state.service
            if llm is not None:
                service.recall.llm = llm
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client:
                yield client, service

    return start


async def post(client: httpx.AsyncClient, message: str, **fields: Any) -> httpx.Response:
    return await client.post("/chat", json={"user": "xiao", "session": "s", "message": message, **fields})


async def say(client: httpx.AsyncClient, message: str, **fields: Any) -> dict[str, Any]:
    answer = await post(client, message, **fields)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


async def said(client: httpx.AsyncClient) -> list[tuple[str, str, str | None]]:
    answer = await client.get("/history", params={"user": "xiao", "session": "s", "last": 500})
    return [(item["role"], item["text"], item["turn"]) for item in answer.json()]


HOSTILE_TURNS = (
    "T",
    "T/reply",
    "T~1reply",
    "T/reply/reply",
    "/reply",
    "~",
    "~0",
    "~1",
    "T/",
    "/T",
    "T\0reply",
    "T~",
)


async def test_every_turn_that_is_acknowledged_is_stored_whatever_it_is_called(serve: Serve) -> None:
    async with serve() as (client, _):
        for turn in HOSTILE_TURNS:
            await say(client, f"this is {turn!r}", turn=turn)
        stored = await said(client)
        assert [turn for role, _, turn in stored if role == "user"] == list(HOSTILE_TURNS)
        assert [turn for role, _, turn in stored if role == "assistant"] == list(HOSTILE_TURNS)
        for turn in HOSTILE_TURNS:
            await say(client, f"this is {turn!r}", turn=turn)
        assert await said(client) == stored


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_known_turn_with_another_text_is_refused(serve: Serve, stream: bool) -> None:
    async with serve() as (client, _):
        first = await say(client, "my name is Xiao Li", turn="t")
        other = await post(client, "my name is Lao Wang", turn="t", stream=stream)
        assert other.status_code == 409
        assert other.json()["error"] == "turn-reused"
        assert "'t' of session 's'" in other.json()["detail"]
        assert [text for _, text, _ in await said(client)] == ["my name is Xiao Li", first["reply"]]
        memories = (await client.get("/memories", params={"user": "xiao"})).json()
        assert [memory["text"] for memory in memories] == ["The user's name is Xiao Li."]
        health = await client.get("/health")
        assert health.json()["status"] == "ok", "a refused message is not a failed write"
        assert (await say(client, "my name is Xiao Li", turn="t"))["reply"] == first["reply"]


@pytest.mark.parametrize("llm", [Changing, InPieces])
async def test_concurrent_retries_get_the_answer_that_is_stored(serve: Serve, llm: type[Changing]) -> None:
    """120 requests at once: 60 turns, each sent twice, once streamed."""
    async with serve(llm()) as (client, _):

        async def ask(turn: str, stream: bool) -> tuple[str, dict[str, Any]]:
            answer = await post(client, f"question {turn}", turn=turn, stream=stream)
            assert answer.status_code == 200, answer.text
            if not stream:
                return turn, answer.json()
            name, data = answer.text.strip().split("\n\n")[-1].split("\n")
            assert name == "event: reply", answer.text
            return turn, json.loads(data.removeprefix("data: "))

        asked = [ask(f"t{n % 60}", stream=n < 60) for n in range(120)]
        answers = await asyncio.gather(*asked)
        stored = await said(client)
        replies = {turn: text for role, text, turn in stored if role == "assistant"}
        assert len(stored) == 120
        assert len(replies) == 60
        wrong = [turn for turn, answer in answers if answer["reply"] != replies[turn]]
        assert not wrong, f"{len(wrong)} of 120 got another answer than the stored one"
        for turn in ("t0", "t59"):
            again = await say(client, f"question {turn}", turn=turn)
            assert again["reply"] == replies[turn], "a hundred messages behind, it is still the first answer"
            assert {answer["receipt"]["first"] for of, answer in answers if of == turn} == {
                again["receipt"]["first"]
            }


async def test_a_retry_tells_what_its_answer_was_made_from(serve: Serve) -> None:
    async with serve() as (client, _):
        await say(client, "my name is Xiao Li")
        first = await say(client, "what is my name?", turn="q")
        assert [memory["text"] for memory in first["memories"]] == ["The user's name is Xiao Li."]
        for text in ("my name is Lao Wang", "my name is not Xiao"):
            await say(client, text)
        again = await say(client, "what is my name?", turn="q")
        assert (again["reply"], again["memories"]) == (first["reply"], first["memories"])
        await client.delete(f"/memories/{first['memories'][0]['id']}", params={"user": "xiao"})
        again = await say(client, "what is my name?", turn="q")
        assert (again["reply"], again["memories"]) == (first["reply"], [])


async def test_a_retry_after_forgetting_says_so(serve: Serve) -> None:
    async with serve() as (client, _):
        await say(client, "my name is Xiao Li", turn="t")
        await client.delete("/history", params={"user": "xiao", "session": "s"})
        await say(client, "something else", turn="u")
        again = await post(client, "my name is Xiao Li", turn="t")
        assert again.status_code == 409
        assert again.json()["error"] == "turn-forgotten"
        assert [turn for _, _, turn in await said(client)] == ["u", "u"]


async def older_chat(settings: ChatSettings, turns: dict[str, str]) -> None:
    """What the chat stored before: turns under their own names, answers under ``/reply``."""
    settings.folders[0].mkdir()
    async with open_store(settings.memory) as store:
        for turn, text in turns.items():
            for role, name, content in (("user", turn, text), ("assistant", f"{turn}/reply", f"re: {text}")):
                message = Message(role, content, metadata={"turn": turn})
                await store.append(conversation_id("xiao", "s"), [message], turn=name)


async def test_turns_of_an_older_chat_are_known(serve: Serve, settings: ChatSettings) -> None:
    await older_chat(settings, {"0191-abcd": "hello", "t:2": "again"})
    async with serve(Changing()) as (client, _):
        for turn, text in (("0191-abcd", "hello"), ("t:2", "again")):
            assert (await say(client, text, turn=turn))["reply"] == f"re: {text}"
        assert len(await said(client)) == 4


async def test_a_turn_of_an_older_chat_without_a_fingerprint_is_compared_too(
    serve: Serve, settings: ChatSettings
) -> None:
    await older_chat(settings, {"t": "hello"})
    async with serve() as (client, service):
        await service.store._submit(  # type: ignore[attr-defined]
            lambda connection: connection.execute("DELETE FROM recollect_fingerprints").rowcount
        )
        assert (await post(client, "another text", turn="t")).status_code == 409
        assert (await say(client, "hello", turn="t"))["reply"] == "re: hello"
        assert len(await said(client)) == 2


async def test_two_services_on_one_memory_give_one_answer(serve: Serve) -> None:
    async with serve(Changing()) as (one, _), serve(Changing()) as (other, _):
        answers = await asyncio.gather(
            *(say(client, f"question {n}", turn=f"t{n}") for n in range(10) for client in (one, other))
        )
        replies = {turn: text for role, text, turn in await said(one) if role == "assistant"}
        assert [answer["reply"] for answer in answers] == [replies[answer["turn"]] for answer in answers]
        assert len(replies) == 10
