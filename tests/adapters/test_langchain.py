"""`RecollectHistory` answers as LangChain's own history does, and its messages come back equal."""

import asyncio
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from langchain_core._api import LangChainDeprecationWarning
from langchain_core.chat_history import BaseChatMessageHistory, InMemoryChatMessageHistory
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from recollect import Message, OutcomeUnknown, Refused, Store
from recollect.adapters import carrying
from recollect.adapters.langchain import RecollectHistory
from recollect.sync import SyncStore, open_store
from tests.adapters.oracle import Compared, World, compared
from tests.adapters.unsteady import LOST_AFTER, Unsteady, lost_for_good
from tests.contract.conftest import Place

pytestmark = pytest.mark.filterwarnings(
    f"ignore::{LangChainDeprecationWarning.__module__}.LangChainDeprecationWarning"
)

TEXT = st.text(max_size=20)
BLOCKS = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT})
    | st.fixed_dictionaries({"type": st.just("image_url"), "image_url": st.just({"url": "data:,"})}),
    max_size=3,
)
CONTENT = TEXT | BLOCKS
IDS = st.none() | TEXT
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "name": TEXT,
            "args": st.dictionaries(TEXT, st.integers(-(2**53), 2**53) | TEXT, max_size=2),
            "id": IDS,
            "type": st.just("tool_call"),
        }
    ),
    max_size=2,
)
USAGE = st.none() | st.just({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3})
MESSAGES = st.one_of(
    st.builds(HumanMessage, content=CONTENT, id=IDS, name=IDS),
    st.builds(SystemMessage, content=CONTENT, additional_kwargs=st.dictionaries(TEXT, TEXT, max_size=2)),
    st.builds(AIMessage, content=CONTENT, id=IDS, tool_calls=CALLS, usage_metadata=USAGE),
    st.builds(ToolMessage, content=CONTENT, tool_call_id=TEXT, status=st.sampled_from(["success", "error"])),
    st.builds(ChatMessage, content=TEXT, role=TEXT),
    st.builds(AIMessageChunk, content=TEXT, id=IDS),
)


class Histories(Compared):
    """Beside LangChain's `InMemoryChatMessageHistory`."""

    def __init__(self, world: World, store: SyncStore) -> None:
        super().__init__(world)
        self.ours = RecollectHistory(self.session, store)
        self.oracle = InMemoryChatMessageHistory()

    @rule(messages=st.lists(MESSAGES, max_size=4))
    def add(self, messages: list[BaseMessage]) -> None:
        self.ours.add_messages(messages)
        self.oracle.add_messages(messages)

    @rule(messages=st.lists(MESSAGES, max_size=4))
    def add_with_await(self, messages: list[BaseMessage]) -> None:
        self.run(self.ours.aadd_messages(messages))
        self.run(self.oracle.aadd_messages(messages))

    @rule(message=MESSAGES)
    def add_the_same_twice(self, message: BaseMessage) -> None:
        for history in (self.ours, self.oracle):
            history.add_message(message)
            history.add_messages([message, message])

    @rule(said=TEXT)
    def add_by_their_short_ways(self, said: str) -> None:
        for history in (self.ours, self.oracle):
            history.add_user_message(said)
            history.add_ai_message(said)

    @rule()
    def clear(self) -> None:
        self.ours.clear()
        self.oracle.clear()

    @rule()
    def clear_with_await(self) -> None:
        self.run(self.ours.aclear())
        self.run(self.oracle.aclear())

    @invariant()
    def the_same_is_there(self) -> None:
        assert self.ours.messages == self.oracle.messages
        assert self.run(self.ours.aget_messages()) == self.oracle.messages
        assert str(self.ours) == str(self.oracle)


def test_it_answers_as_langchains_own_history(place: Place) -> None:
    with open_store(place.url) as store:
        compared(lambda world: Histories(world, store), place.url, steps=15)


def test_it_is_a_history_of_langchain(place: Place, session: str) -> None:
    with open_store(place.url) as store:
        assert isinstance(RecollectHistory(session, store), BaseChatMessageHistory)


def test_the_last_messages_only(place: Place, session: str) -> None:
    with open_store(place.url) as store:
        RecollectHistory(session, store).add_messages([HumanMessage("a"), AIMessage("b"), HumanMessage("c")])
        assert RecollectHistory(session, store, last=2).messages == [AIMessage("b"), HumanMessage("c")]


async def _unsteady(url: str, *troubles: str) -> Store:
    from recollect import open_store

    return cast(Store, Unsteady(await open_store(url), *troubles))


def test_an_answer_that_is_lost_stores_nothing_twice(place: Place, session: str) -> None:
    with SyncStore(_unsteady(place.url, LOST_AFTER)) as store:
        history = RecollectHistory(session, store)
        history.add_messages([HumanMessage("hello")])
        assert history.messages == [HumanMessage("hello")]


def test_what_stays_unknown_says_what_to_do_without_a_turn_id(
    place: Place, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    with SyncStore(_unsteady(place.url, *lost_for_good() * 2)) as store:
        history = RecollectHistory(session, store)
        with pytest.raises(OutcomeUnknown, match=carrying.LOOK_FIRST):
            history.add_messages([HumanMessage("hello")])
        assert history.messages == [HumanMessage("hello")]
        with pytest.raises(OutcomeUnknown, match=carrying.CALL_AGAIN):
            history.clear()
        history.clear()
        assert history.messages == []


def test_what_is_no_json_is_refused_and_nothing_is_added(place: Place, session: str) -> None:
    with open_store(place.url) as store:
        history = RecollectHistory(session, store)
        with pytest.raises(Refused):
            history.add_messages(
                [HumanMessage("fine"), ToolMessage("x", tool_call_id="c", artifact=object())]
            )
        assert history.messages == []


def test_what_is_no_message_is_refused(place: Place, session: str) -> None:
    with open_store(place.url) as store:
        history = RecollectHistory(session, store)
        for given in ([HumanMessage("fine"), "text"], "text", [None]):
            with pytest.raises(Refused, match="a message of LangChain"):
                history.add_messages(cast("list[BaseMessage]", given))
        assert history.messages == []


def test_others_can_read_it(place: Place, session: str) -> None:
    """The chat page and recall see roles and texts; messages of theirs are messages here."""
    with open_store(place.url) as store:
        history = RecollectHistory(session, store)
        history.add_messages([HumanMessage("hello"), AIMessage([{"type": "text", "text": "hi"}])])
        store.append(session, [Message("user", "from elsewhere")])
        read = [cast(Message, item.message) for item in store.history(session)]
        assert [(message.role, message.text) for message in read] == [
            ("user", "hello"),
            ("assistant", "hi"),
            ("user", "from elsewhere"),
        ]
        assert history.messages[2].content == "from elsewhere"
        assert isinstance(history.messages[2], HumanMessage)


async def test_tasks_at_once_lose_nothing(place: Place, session: str) -> None:
    store = await asyncio.to_thread(open_store, place.url)
    try:
        history: Any = RecollectHistory(session, store)
        await asyncio.gather(*[history.aadd_messages([HumanMessage(str(number))]) for number in range(20)])
        assert sorted(int(message.content) for message in await history.aget_messages()) == list(range(20))
    finally:
        await asyncio.to_thread(store.close)
