"""`RecollectHistory` answers as Agent Framework's own in-memory history does."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, cast

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    HistoryProvider,
    InMemoryHistoryProvider,
)
from agent_framework import Message as AgentMessage
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from recollect import Message, OutcomeUnknown, Refused, Store
from recollect.adapters import carrying
from recollect.adapters.agent_framework import RecollectHistory
from tests.adapters.oracle import Compared, World, compared
from tests.adapters.unsteady import LOST_AFTER, Unsteady, lost_for_good
from tests.contract.conftest import Place

TEXT = st.text(max_size=20)
IDS = st.none() | TEXT
ARGUMENTS = st.dictionaries(TEXT, st.integers(-(2**53), 2**53) | TEXT, max_size=2)
CONTENTS = st.one_of(
    st.builds(Content.from_text, TEXT),
    st.builds(Content.from_function_call, call_id=TEXT, name=TEXT, arguments=ARGUMENTS | TEXT),
    st.builds(Content.from_function_result, call_id=TEXT, result=TEXT),
    st.builds(Content.from_data, data=st.binary(max_size=8), media_type=st.just("image/png")),
)
MESSAGES = st.builds(
    AgentMessage,
    st.sampled_from(["user", "assistant", "system", "tool"]),
    st.lists(CONTENTS, max_size=3),
    author_name=IDS,
    message_id=IDS,
    additional_properties=ARGUMENTS,
)


def _shown(messages: Sequence[AgentMessage]) -> list[dict[str, Any]]:
    """Messages of this framework have no equality of their own."""
    return [message.to_dict() for message in messages]


class Histories(Compared):
    """Beside the framework's `InMemoryHistoryProvider`, whose memory is a dictionary."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ours = RecollectHistory(self.store)
        self.oracle = InMemoryHistoryProvider()
        self.state: dict[str, Any] = {}
        self.number = 0

    @rule(messages=st.lists(MESSAGES, max_size=4))
    def save(self, messages: list[AgentMessage]) -> None:
        for message in messages:
            self.number += 1
            # Each is another one, also for the oracle.
            message.message_id = f"{self.number} {message.message_id}"
        self.run(self.ours.save_messages(self.session, messages))
        self.run(self.oracle.save_messages(self.session, messages, state=self.state))

    @invariant()
    def the_same_is_there(self) -> None:
        ours = self.run(self.ours.get_messages(self.session))
        assert _shown(ours) == _shown(self.run(self.oracle.get_messages(self.session, state=self.state)))


def test_it_answers_as_the_frameworks_own_history(place: Place) -> None:
    compared(Histories, place.url, steps=15)


@pytest.mark.parametrize("identity", [None, "m1"])
async def test_the_same_message_again_is_another_message(
    store: Store, session: str, identity: str | None
) -> None:
    """Unlike in the framework's own providers, which take what looks like the end of the history for a replay."""
    history = RecollectHistory(store)
    again = AgentMessage("assistant", ["yes"], message_id=identity)
    await history.save_messages(session, [again, again])
    await history.save_messages(session, [again])
    assert _shown(await history.get_messages(session)) == [again.to_dict()] * 3


async def test_it_is_a_history_provider_and_keeps_its_flags(store: Store) -> None:
    history = RecollectHistory(store, store_outputs=False)
    assert isinstance(history, HistoryProvider)
    assert not history.store_outputs
    assert history.store_inputs


async def test_the_last_messages_only(store: Store, session: str) -> None:
    await RecollectHistory(store).save_messages(session, [AgentMessage("user", [name]) for name in "abc"])
    read = await RecollectHistory(store, last=2).get_messages(session)
    assert [message.text for message in read] == ["b", "c"]


async def test_an_answer_that_is_lost_stores_nothing_twice(store: Store, session: str) -> None:
    history = RecollectHistory(cast(Store, Unsteady(store, LOST_AFTER)))
    await history.save_messages(session, [AgentMessage("user", ["hello"])])
    assert [message.text for message in await history.get_messages(session)] == ["hello"]


async def test_what_stays_unknown_says_what_to_do_without_a_turn_id(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    history = RecollectHistory(cast(Store, Unsteady(store, *lost_for_good())))
    with pytest.raises(OutcomeUnknown, match=carrying.LOOK_FIRST):
        await history.save_messages(session, [AgentMessage("user", ["hello"])])
    assert [message.text for message in await history.get_messages(session)] == ["hello"]


async def test_what_is_no_message_is_refused(store: Store, session: str) -> None:
    history = RecollectHistory(store)
    for given in ([AgentMessage("user", ["fine"]), "text"], [None]):
        with pytest.raises(Refused, match="a Message of Agent Framework"):
            await history.save_messages(session, cast("list[AgentMessage]", given))
    assert await history.get_messages(session) == []


async def test_what_a_tool_returned_is_text_for_others(store: Store, session: str) -> None:
    result = Content.from_function_result("c", result="sunny")
    await RecollectHistory(store).save_messages(session, [AgentMessage("tool", [result])])
    (stored,) = await store.history(session)
    assert isinstance(stored.message, Message)
    assert stored.message.text == "sunny"


async def test_without_a_session_it_says_what_to_do(store: Store) -> None:
    with pytest.raises(Refused, match="create_session"):
        await RecollectHistory(store).get_messages(None)


async def test_others_can_read_it(store: Store, session: str) -> None:
    history = RecollectHistory(store)
    await history.save_messages(session, [AgentMessage("assistant", ["hi", Content.from_text("there")])])
    await store.append(session, [Message("user", "from elsewhere")])
    read = [cast(Message, item.message) for item in await store.history(session)]
    assert [(message.role, message.text) for message in read] == [
        ("assistant", "hi\nthere"),
        ("user", "from elsewhere"),
    ]
    assert [message.text for message in await history.get_messages(session)][1] == "from elsewhere"


# ---- a whole agent


class Scripted(BaseChatClient):
    """Answers from a list, and keeps what it was asked."""

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked: list[list[str]] = []

    def _inner_get_response(
        self, *, messages: Sequence[AgentMessage], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Awaitable[ChatResponse]:
        self.asked.append([message.text for message in messages])

        async def answer() -> ChatResponse:
            return ChatResponse(messages=[AgentMessage("assistant", [self.answers.pop(0)])])

        return answer()


async def test_an_agent_remembers_in_another_process(store: Store, session: str) -> None:
    """Two agents that share nothing but the store."""
    for number, client in enumerate([Scripted("Hello, Li."), Scripted("Li.")]):
        agent = Agent(client=client, context_providers=[RecollectHistory(store)])
        question = ("I am Li.", "Who am I?")[number]
        await agent.run(question, session=agent.create_session(session_id=session))
    assert client.asked == [["I am Li.", "Hello, Li.", "Who am I?"]]
    texts = [cast(Message, item.message).text for item in await store.history(session)]
    assert texts == ["I am Li.", "Hello, Li.", "Who am I?", "Li."]


async def test_requests_at_once_lose_nothing(store: Store, session: str) -> None:
    history = RecollectHistory(store)
    pairs = [
        [AgentMessage("user", [f"{number}?"]), AgentMessage("assistant", [f"{number}!"])]
        for number in range(20)
    ]
    await asyncio.gather(*[history.save_messages(session, pair) for pair in pairs])
    texts = [message.text for message in await history.get_messages(session)]
    assert sorted(zip(texts[::2], texts[1::2], strict=True)) == sorted((f"{n}?", f"{n}!") for n in range(20))
