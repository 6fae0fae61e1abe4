"""`RecollectSession` answers as the SDK's own sessions do, and keeps what they may lose."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    Session,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.memory import SessionSettings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from recollect import Message, OutcomeUnknown, Refused, Store, Unreadable, open_store
from recollect.adapters import carrying
from recollect.adapters.openai_agents import RecollectSession
from tests.adapters.oracle import Compared, World, compared
from tests.adapters.unsteady import LOST_AFTER, Unsteady, lost_for_good
from tests.contract.conftest import Place

set_tracing_disabled(True)  # nothing here may call out

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": st.text()},
    optional={"id": st.text(), "status": st.just("completed"), "type": st.just("message")},
)
BLOCKS = st.fixed_dictionaries(
    {
        "role": st.just("user"),
        "content": st.lists(st.fixed_dictionaries({"type": st.just("input_text"), "text": st.text()})),
    }
)
CALLS = st.fixed_dictionaries(
    {"type": st.just("function_call"), "call_id": st.text(), "name": st.text(), "arguments": st.text()}
)
OUTPUTS = st.fixed_dictionaries(
    {"type": st.just("function_call_output"), "call_id": st.text(), "output": st.text() | st.lists(JSON)}
)
REASONING = st.fixed_dictionaries(
    {"type": st.just("reasoning"), "id": st.text(), "summary": st.lists(JSON), "provider_data": JSON}
)
REFERENCES = st.fixed_dictionaries(
    {"id": st.text()}, optional={"type": st.sampled_from(["item_reference", None])}
)
ITEMS: Any = MESSAGES | BLOCKS | CALLS | OUTPUTS | REASONING | REFERENCES


class AgentsSessions(Compared):
    """Beside the SDK's `SQLiteSession`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ours = RecollectSession(self.session, self.store)
        self.oracle = SQLiteSession(self.session)

    @rule(items=st.lists(ITEMS, max_size=4))
    def add(self, items: list[Any]) -> None:
        self.run(self.ours.add_items(items))
        self.run(self.oracle.add_items(items))

    @rule(item=ITEMS)
    def add_the_same_twice(self, item: Any) -> None:
        for session in (self.ours, self.oracle):
            self.run(session.add_items([item, item]))
            self.run(session.add_items([item]))

    @rule()
    def pop(self) -> None:
        assert self.run(self.ours.pop_item()) == self.run(self.oracle.pop_item())

    @rule()
    def clear(self) -> None:
        self.run(self.ours.clear_session())
        self.run(self.oracle.clear_session())

    @rule(limit=st.integers(-2, 8))
    def read(self, limit: int) -> None:
        assert self.run(self.ours.get_items(limit)) == self.run(self.oracle.get_items(limit))

    @rule(limit=st.none() | st.integers(1, 5))
    def settle_the_limit(self, limit: int | None) -> None:
        for session in (self.ours, self.oracle):
            session.session_settings = SessionSettings(limit=limit)

    @invariant()
    def the_same_is_there(self) -> None:
        assert self.run(self.ours.get_items()) == self.run(self.oracle.get_items())

    def teardown(self) -> None:
        self.oracle.close()


def test_it_answers_as_the_sdks_own_session(place: Place) -> None:
    compared(AgentsSessions, place.url)


async def test_it_is_a_session_of_the_sdk(store: Store, session: str) -> None:
    assert isinstance(RecollectSession(session, store), Session)


async def test_settings_may_be_a_mapping(store: Store, session: str) -> None:
    ours = RecollectSession(session, store, session_settings={"limit": 1})
    await ours.add_items([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    assert await ours.get_items() == [{"role": "user", "content": "b"}]


async def test_an_answer_that_is_lost_stores_nothing_twice(store: Store, session: str) -> None:
    unsteady = cast(Store, Unsteady(store, LOST_AFTER))
    await RecollectSession(session, unsteady).add_items([{"role": "user", "content": "hello"}])
    assert await RecollectSession(session, store).get_items() == [{"role": "user", "content": "hello"}]


async def test_what_stays_unknown_says_what_to_do_without_a_turn_id(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    ours = RecollectSession(session, cast(Store, Unsteady(store, *lost_for_good() * 3)))
    with pytest.raises(OutcomeUnknown, match=carrying.LOOK_FIRST):
        await ours.add_items([{"role": "user", "content": "hello"}])
    with pytest.raises(OutcomeUnknown, match="shows whether the message is still there"):
        await ours.pop_item()
    assert await ours.get_items() == []
    with pytest.raises(OutcomeUnknown, match=carrying.CALL_AGAIN):
        await ours.clear_session()
    await ours.clear_session()


async def test_the_text_of_every_item_can_be_read(store: Store, session: str) -> None:
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "What is 2 and 2?"}]},
        {"type": "function_call_output", "call_id": "c", "output": "four"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "adding"}]},
    ]
    await RecollectSession(session, store).add_items(items)
    texts = [cast(Message, item.message).text for item in await store.history(session)]
    assert texts == ["What is 2 and 2?", "four", "adding"]


async def test_a_turn_with_a_bad_item_is_refused_whole(store: Store, session: str) -> None:
    ours = RecollectSession(session, store)
    with pytest.raises(Refused):
        await ours.add_items([{"role": "user", "content": "fine"}, {"role": "user", "content": object()}])  # type: ignore[list-item]
    assert await ours.get_items() == []


async def test_what_is_no_dictionary_is_refused(store: Store, session: str) -> None:
    ours = RecollectSession(session, store)
    wrong: list[Any] = [["text"], "text", [None], {"role": "user", "content": "not in a list"}]
    for given in wrong:
        with pytest.raises(Refused, match="an OpenAI message is a dictionary"):
            await ours.add_items(given)
    assert await ours.get_items() == []


async def test_a_damaged_item_keeps_its_place_and_is_not_taken(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        ours = RecollectSession("s", store)
        await ours.add_items([{"role": "user", "content": "before"}, {"role": "user", "content": "broken"}])
        _flip_a_byte_of_the_last_record(tmp_path / "memory.db")
        first, second = cast(list[dict[str, Any]], await ours.get_items())
        assert first["content"] == "before"
        assert second["role"] == "system"
        assert "cannot be read" in second["content"]
        with pytest.raises(Unreadable, match="sequence 2"):
            await ours.pop_item()
        assert len(await ours.get_items()) == 2


def _flip_a_byte_of_the_last_record(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        place, record = database.execute("SELECT max(place), record FROM recollect_messages").fetchone()
        changed = record.replace(b"broken", b"Broken")
        database.execute("UPDATE recollect_messages SET record = ? WHERE place = ?", (changed, place))


# ---- a whole agent


class Scripted(Model):
    """Answers from a list, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
        self.asked.append(input)
        return ModelResponse(output=[self._answers.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing here streams")


def _said(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="m", content=[content], role="assistant", status="completed", type="message"
    )


@function_tool
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


async def test_an_agent_remembers_what_was_said_and_what_its_tools_answered(
    store: Store, session: str
) -> None:
    call = ResponseFunctionToolCall(
        call_id="c", name="add", arguments='{"a": 2, "b": 2}', type="function_call"
    )
    model = Scripted(call, _said("Four."), _said("You asked for 2 and 2."))
    agent = Agent(name="adder", model=model, tools=[add])
    await Runner.run(agent, "What is 2 and 2?", session=RecollectSession(session, store))
    await Runner.run(agent, "What did I ask?", session=RecollectSession(session, store))
    kinds = [item.get("type", "message") for item in model.asked[-1]]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message"]
    assert model.asked[-1][2]["output"] == "4"


async def test_requests_at_once_lose_nothing(store: Store, session: str) -> None:
    async def add_pair(number: int) -> None:
        items: Any = [
            {"role": "user", "content": f"{number}?"},
            {"role": "assistant", "content": f"{number}!"},
        ]
        await RecollectSession(session, store).add_items(items)

    await asyncio.gather(*[add_pair(number) for number in range(20)])
    texts = [cast(Any, item)["content"] for item in await RecollectSession(session, store).get_items()]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    assert sorted(pairs) == sorted((f"{number}?", f"{number}!") for number in range(20))
