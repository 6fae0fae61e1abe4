"""The code of docs/adapters/*.md is run, a page in one namespace, with a scripted model in the place of a real one."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.verify.engines import Engine
from tests.docs.blocks import PROJECT, python_of, run_python

EXAMPLES = PROJECT / "examples"


def _program(folder: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES / folder)
    sys.modules.pop(name, None)
    return importlib.import_module(name)


def _run(page: str, names: dict[str, Any], then: str, url: str | None = None) -> dict[str, Any]:
    for code in (*python_of(f"docs/adapters/{page}.md"), textwrap.dedent(then)):
        run_python(code.replace("redis://localhost", url or "redis://localhost"), names, page)
    return names


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_adk(engine_of: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    helpdesk = _program("adk-helpdesk", "helpdesk", monkeypatch)
    agent = helpdesk.LlmAgent(name="desk", model=helpdesk.ScriptedModel(), instruction="Be kind.")
    names = _run("adk", {"agent": agent}, "", engine_of("redis").endpoint.url)
    assert names["runner"].session_service is names["service"]


def test_openai_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    assistant = _program("agents-assistant", "assistant", monkeypatch)
    assistant.set_tracing_disabled(True)
    then = """
    agent.model = model
    agent.tools = [greeting]
    assert await answer("My name is Li.") == "Hello, Li!"
    assert await answer("What is my name?") == "Your name is Li."
    """
    _run("openai-agents", {"model": assistant.ScriptedModel(), "greeting": assistant.greeting}, then)


def test_agent_framework() -> None:
    from agent_framework import BaseChatClient, ChatResponse
    from agent_framework import Message as AgentMessage

    class Echo(BaseChatClient):
        def _inner_get_response(self, *, messages: Any, **_: Any) -> Awaitable[ChatResponse]:  # type: ignore[override]
            async def answer() -> ChatResponse:
                said = AgentMessage("assistant", [f"{len(messages)} messages"])
                return ChatResponse(messages=said)

            return answer()

    then = """
    async with open_store("sqlite:///memory.db") as store:
        assert len(await store.history("user-42")) == 2
    """
    _run("agent-framework", {"client": Echo()}, then)


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
def test_langchain() -> None:
    from langchain_core.language_models import FakeListChatModel

    then = """
    configuration = {"configurable": {"session_id": "user-42"}}
    assert chain.invoke("hello", configuration).content == "hi"
    assert [message.content for message in RecollectHistory("user-42", store).messages] == ["hello", "hi"]
    store.close()
    """
    _run("langchain", {"model": FakeListChatModel(responses=["hi"])}, then)


def test_langgraph() -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [("ai", f"{len(state['messages'])} messages")]})
    builder.add_edge(START, "answer")
    then = """
    with RecollectSaver("sqlite:///memory.db") as saver:
        graph = builder.compile(checkpointer=saver)
        kept = graph.get_state({"configurable": {"thread_id": "user-42"}}).values["messages"]
        assert [message.content for message in kept] == ["hello", "1 messages"]
    with RecollectStore("sqlite:///memory.db") as store:
        assert store.get(("users", "li"), "likes").value == {"text": "green apples"}
    """
    _run("langgraph", {"builder": builder}, then)


def test_pydantic_ai() -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    then = """
    async with open_store("sqlite:///memory.db") as store:
        assert len((await RecollectConversations(store).load("user-42")).messages) == 2
    """
    _run("pydantic-ai", {"agent": Agent(TestModel())}, then)
