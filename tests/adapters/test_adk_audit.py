"""A session of ADK, as an audit reads it: a call whose answer is lost is told; a long-running one may have none."""

import time

import pytest
from google.adk.events import Event
from google.adk.sessions import InMemorySessionService
from google.genai.types import Content, FunctionCall, FunctionResponse, Part

from recollect.audit.conversation import judged
from recollect.composite import composite_id
from recollect.errors import Refused
from recollect.verify.named.adk import AdkSessions


def said(author: str, part: Part, waiting: set[str] | None = None) -> Event:
    return Event(author=author, content=Content(role="model", parts=[part]), long_running_tool_ids=waiting)


def called(name: str, waiting: bool = False) -> Event:
    return said(
        "agent", Part(function_call=FunctionCall(id=name, name="look_up")), {name} if waiting else None
    )


def answered(name: str) -> Event:
    return said(
        "agent", Part(function_response=FunctionResponse(id=name, name="look_up", response={"is": "so"}))
    )


async def found_in(*events: Event) -> list[str]:
    service = InMemorySessionService()
    session = await service.create_session(app_name="the/app", user_id="u", session_id="s")
    for event in events:
        await service.append_event(session, event)
    place = composite_id("the/app", "u", "s")
    return [one.name for one in judged(place, await AdkSessions(service).get_messages(place), time.time())]


HELLO = Part(text="hello")


async def test_a_call_and_its_answer_belong_together() -> None:
    assert await found_in(called("c1"), answered("c1"), said("agent", HELLO)) == []
    assert await found_in(called("c1"), said("agent", HELLO)) == ["half-turn"]
    assert await found_in(answered("c1"), said("agent", HELLO)) == ["half-turn"]


async def test_a_long_running_call_may_have_no_answer_yet() -> None:
    assert await found_in(called("c1", waiting=True), said("agent", HELLO)) == []
    assert await found_in(called("c1", waiting=True), said("agent", HELLO), answered("c1")) == []


async def test_nothing_is_appended() -> None:
    with pytest.raises(Refused, match="only reads"):
        await AdkSessions(InMemorySessionService()).append_message("a/u/s", {"content": "hello"})
