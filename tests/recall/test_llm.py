"""Rules for facts, the stand-in, and models behind an OpenAI-compatible endpoint."""

import json
from typing import Any

import httpx
import pytest

from recollect import Message, open_store
from recollect.recall import LLM, ModelFailed, OpenAIModel, StandIn, open_recall
from recollect.recall.facts import facts_in
from recollect.recall.llm import answer_prompt, facts_from, summary_prompt


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("My name is Xiao Li.", ["The user's name is Xiao Li."]),
        ("hi, I'm called Sam and I live in Oslo", ["The user's name is Sam.", "The user lives in Oslo."]),
        ("I don't like mushrooms!", ["The user does not like mushrooms."]),
        (
            "I really love jazz, but I hate techno.",
            ["The user does not like techno.", "The user likes jazz."],
        ),
        ("I am 42 years old", ["The user is 42 years old."]),
        ("My favourite colour is green.", ["The user's favourite colour is green."]),
        ("I have two cats", ["The user has two cats."]),
        ("Remember that the gate code is 1234", ["The user asked to remember: the gate code is 1234."]),
        ("what is my name?", []),
        ("My name is unknown to you, is it not?", []),
        ("The weather is nice.", []),
        ("", []),
        ("I am a nurse. I am a nurse.", ["The user is a nurse."]),
        ("I live in St. Gallen", ["The user lives in St. Gallen."]),
    ],
)
def test_facts_by_rules(text: str, facts: list[str]) -> None:
    assert facts_in(text) == facts


@pytest.mark.parametrize(
    "text", ["my name is " * 2000, "i have a " + "x " * 20_000, "my a b c d " * 3000, "." * 50_000]
)
def test_long_text_is_read_in_reasonable_time(text: str) -> None:
    assert all(len(fact) <= 500 for fact in facts_in(text))


async def test_the_stand_in_only_quotes() -> None:
    model = StandIn()
    assert isinstance(model, LLM)
    assert "stand-in" in model.label
    asked = Message("user", "what is my name?")
    nothing = await model.complete([answer_prompt(""), asked])
    assert nothing == "I have no memory of that."
    quoted = await model.complete([answer_prompt("- The user's name is Xiao Li."), asked])
    assert quoted == "From memory: The user's name is Xiao Li."
    noted = await model.complete([answer_prompt(""), Message("user", "I live in Oslo.")])
    assert noted == "Noted: The user lives in Oslo."
    summary = await model.complete([summary_prompt(), Message("user", "I live in Oslo.")])
    assert summary == "The user lives in Oslo."
    assert await model.complete([summary_prompt(), Message("user", "hello")]) == "none"


def test_lines_of_a_summary() -> None:
    answer = "- The user likes tea.\n\n2. The user has a cat.\n* The user is 5.\nNone.\nnone"
    assert facts_from(answer) == ["The user likes tea.", "The user has a cat.", "The user is 5."]


def model_behind(handler: Any) -> OpenAIModel:
    model = OpenAIModel("small", base_url="http://model.test/v1", api_key="k")
    model._client = model._client.with_options(
        http_client=httpx.AsyncClient(transport=httpx.MockTransport(handler)), max_retries=0
    )
    return model


def completion(text: str) -> httpx.Response:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "small", "choices": [choice]}
    return httpx.Response(200, json=body)


async def test_a_model_behind_an_endpoint_summarises(tmp_path: Any) -> None:
    asked: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return completion("The user speaks Norwegian.\nThe user is a diver.")

    url = f"sqlite:///{tmp_path}/memory.db"
    async with open_recall(url, llm=model_behind(handler)) as recall:
        await recall.remember("u", [Message("user", "Jeg snakker norsk."), Message("assistant", "Fint!")])
        assert [memory.text for memory in await recall.memories("u")] == [
            "The user is a diver.",
            "The user speaks Norwegian.",
        ]
    assert [message["role"] for message in asked[0]["messages"]] == ["system", "user"]
    assert len(asked) == 1


async def test_a_model_that_fails_loses_nothing(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    answers = [httpx.Response(500, text="down"), completion("The user likes tea.")]
    async with open_store(url) as store:
        async with open_recall(
            url, llm=model_behind(lambda _: answers.pop(0)), conversations=store
        ) as recall:
            with pytest.raises(ModelFailed, match="small"):
                await recall.remember("u", [Message("user", "I like tea.")], session="s", turn="t")
            again = await recall.remember("u", [Message("user", "I like tea.")], session="s", turn="t")
            assert [memory.text for memory in again.memories] == ["The user likes tea."]


async def test_a_streaming_model_gives_pieces() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        chunks = []
        for text in ("Hel", "lo"):
            choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
            body = {
                "id": "1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [choice],
            }
            chunks.append(f"data: {json.dumps(body)}\n\n")
        content = "".join(chunks) + "data: [DONE]\n\n"
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=content)

    model = model_behind(handler)
    assert [piece async for piece in model.stream([Message("user", "hi")])] == ["Hel", "lo"]
