"""`RecollectConversations` answers as Pydantic AI's own in-memory store does."""

import asyncio
import pickle
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

from recollect import Message, OutcomeUnknown, Refused, Store, open_store
from recollect.adapters import carrying
from recollect.adapters.pydantic_ai import EntryId, RecollectConversations
from tests.adapters.not_json import circle, deep
from tests.adapters.oracle import Compared, World, compared
from tests.adapters.unsteady import LOST_AFTER, LOST_BEFORE, REFUSED, Unsteady, lost_for_good
from tests.contract.conftest import Place

TEXT = st.text(max_size=12)
REQUEST_PARTS = st.one_of(
    st.builds(SystemPromptPart, TEXT),
    st.builds(UserPromptPart, TEXT),
    st.builds(
        UserPromptPart,
        st.tuples(TEXT, st.builds(BinaryImage, st.binary(max_size=8), media_type=st.just("image/png"))).map(
            list
        ),
    ),
    st.builds(ToolReturnPart, TEXT, TEXT | st.dictionaries(TEXT, st.integers()), tool_call_id=TEXT),
)
RESPONSE_PARTS = st.one_of(
    st.builds(TextPart, TEXT),
    st.builds(ThinkingPart, TEXT),
    st.builds(ToolCallPart, TEXT, TEXT | st.dictionaries(TEXT, st.integers(), max_size=2), tool_call_id=TEXT),
)
MESSAGES: Any = st.one_of(
    st.builds(ModelRequest, parts=st.lists(REQUEST_PARTS, max_size=3), instructions=st.none() | TEXT),
    st.builds(ModelResponse, parts=st.lists(RESPONSE_PARTS, max_size=3), model_name=st.none() | TEXT),
)
NAMES = st.sampled_from(["a", "b", "c"])
SCOPES = st.none() | st.sampled_from(["mine", "yours"])


class Pair:
    """A conversation as the application holds it, once for each store."""

    def __init__(self, ours: Conversation, oracle: Conversation) -> None:
        self.both = (ours, oracle)


class Conversations(Compared):
    """Beside `InMemoryConversationStore`. Ids and times are each store's own, so they are compared by their places."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ours = RecollectConversations(self.store, prefix=f"{self.session}/")
        self.oracle = InMemoryConversationStore()
        self.held: list[Pair] = []

    @rule(name=NAMES, messages=st.lists(MESSAGES, max_size=3), scope=SCOPES)
    def begin(self, name: str, messages: list[ModelMessage], scope: str | None) -> None:
        ours, oracle = (Conversation(conversation_id=name, messages=list(messages)) for _ in range(2))
        self._save(Pair(ours, oracle), scope)

    @rule(data=st.data(), messages=st.lists(MESSAGES, max_size=3), requests=st.integers(0, 5), scope=SCOPES)
    def go_on(self, data: Any, messages: list[ModelMessage], requests: int, scope: str | None) -> None:
        if not self.held:
            return
        pair = data.draw(st.sampled_from(self.held))  # often one that somebody else has saved since
        for conversation in pair.both:
            conversation.messages += messages
            conversation.usage = conversation.usage + RunUsage(requests=requests)
            conversation.deferred_tool_requests = (
                DeferredToolRequests(calls=[ToolCallPart("t", "{}", tool_call_id="c")])
                if requests % 2
                else None
            )
        self._save(pair, scope)

    @rule(data=st.data(), messages=st.lists(MESSAGES, min_size=1, max_size=2))
    def rewrite(self, data: Any, messages: list[ModelMessage]) -> None:
        if not self.held:
            return
        pair = data.draw(st.sampled_from(self.held))
        for conversation in pair.both:
            conversation.messages = [*conversation.messages[:-1], *messages]
        self._save(pair, None)

    @rule(name=NAMES, limit=st.none() | st.integers(-1, 4), scope=SCOPES)
    def load(self, name: str, limit: int | None, scope: str | None) -> None:
        ours, oracle = self._both(lambda store: store.load(name, limit=limit, scope=scope))
        if isinstance(ours, Conversation):
            self.held.append(Pair(ours, oracle))
            ours, oracle = _shown(ours), _shown(oracle)
        assert ours == oracle

    @rule(name=NAMES, at=st.integers(0, 6), stale=st.booleans())
    def branch(self, name: str, at: int, stale: bool) -> None:
        async def branched(store: ConversationStore) -> Conversation:
            record = await store.read_record(name)
            revision = "another" if stale or record is None else record.revision
            return await store.branch(name, at=at, expected_revision=revision)

        self._hold(self._both(branched))

    @rule(name=NAMES, tip=st.integers(0, 3))
    def branch_back(self, name: str, tip: int) -> None:
        async def branched(store: ConversationStore) -> Conversation | None:
            record = await store.read_record(name)
            if record is None or tip >= len(record.branches):
                return None
            return await store.branch(
                name, from_entry=record.branches[tip], expected_revision=record.revision
            )

        self._hold(self._both(branched))

    @rule(name=NAMES, new=NAMES, at=st.none() | st.integers(0, 6), scope=SCOPES)
    def fork(self, name: str, new: str, at: int | None, scope: str | None) -> None:
        self._hold(self._both(lambda store: store.fork(name, at=at, new_conversation_id=new, scope=scope)))

    @rule(name=NAMES, scope=SCOPES)
    def delete(self, name: str, scope: str | None) -> None:
        ours, oracle = self._both(lambda store: store.delete(name, scope=scope))
        assert ours == oracle

    @rule(scope=SCOPES, limit=st.none() | st.integers(0, 2))
    def list_them(self, scope: str | None, limit: int | None) -> None:
        ours, oracle = self._both(lambda store: store.list_conversations(scope=scope, limit=limit))
        assert [record.conversation_id for record in ours] == [record.conversation_id for record in oracle]

    @invariant()
    def the_same_is_there(self) -> None:
        for name in ("a", "b", "c"):
            ours, oracle = self._both(lambda store, name=name: _described(store, name))
            assert ours == oracle

    def _save(self, pair: Pair, scope: str | None) -> None:
        outcomes = []
        for store, conversation in zip((self.ours, self.oracle), pair.both, strict=True):
            outcomes.append(self.run(_outcome(store.save(conversation, scope=scope))))
        ours, oracle = outcomes
        if isinstance(ours, list):
            assert [entry.message for entry in ours] == [entry.message for entry in oracle]
            self.held.append(pair)
        else:
            assert ours == oracle

    def _both(self, call: Any) -> tuple[Any, Any]:
        return self.run(_outcome(call(self.ours))), self.run(_outcome(call(self.oracle)))

    def _hold(self, both: tuple[Any, Any]) -> None:
        ours, oracle = both
        if isinstance(ours, Conversation):
            assert _shown(ours) == _shown(oracle)
            self.held.append(Pair(ours, oracle))
        else:
            assert ours == oracle


async def _outcome(work: Any) -> Any:
    """What it gives, or the error that it raises: both are answers."""
    try:
        return await work
    except UserError as error:
        return type(error), str(error)


def _shown(conversation: Conversation) -> Any:
    return conversation.messages, conversation.usage, conversation.deferred_tool_requests


async def _described(store: ConversationStore, name: str) -> Any:
    record = await store.read_record(name)
    if record is None:
        return None
    history = [entry.message for entry in await store.read_history(record.head_id)]
    branches = [len(await store.read_history(tip)) for tip in record.branches]
    return history, branches, record.scope, record.forked_from, record.usage, record.deferred_tool_requests


def test_it_answers_as_the_in_memory_store(place: Place) -> None:
    compared(Conversations, place.url, steps=12)


def _said(*texts: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(text)]) for text in texts]


async def _begun(store: Store, session: str, *texts: str) -> RecollectConversations:
    conversations = RecollectConversations(store)
    await conversations.save(Conversation(conversation_id=session, messages=_said(*texts)))
    return conversations


def _texts(conversation: Conversation | None) -> list[Any]:
    assert conversation is not None
    return [cast(Any, message.parts[0]).content for message in conversation.messages]


async def test_of_two_that_loaded_the_same_one_is_told(store: Store, session: str) -> None:
    conversations = await _begun(store, session, "hello")
    first, second = await conversations.load(session), await conversations.load(session)
    assert first is not None
    assert second is not None
    first.messages += _said("first")
    second.messages += _said("second")
    answers = await asyncio.gather(
        conversations.save(first), conversations.save(second), return_exceptions=True
    )
    assert [type(answer) for answer in answers].count(ConversationConflict) == 1
    assert len(_texts(await conversations.load(session))) == 2


async def test_a_copy_loaded_before_a_delete_is_not_saved_over_what_came_after(
    store: Store, session: str
) -> None:
    conversations = await _begun(store, session, "old")
    held = await conversations.load(session)
    assert held is not None
    await conversations.delete(session)
    held.messages += _said("late")
    with pytest.raises(ConversationConflict):
        await conversations.save(held)
    assert await conversations.load(session) is None
    await _begun(store, session, "new")
    with pytest.raises(ConversationConflict):
        await conversations.save(held)
    assert _texts(await conversations.load(session)) == ["new"]


async def test_deleting_takes_the_messages_and_leaves_forks(store: Store, session: str) -> None:
    conversations = await _begun(store, session, "one", "two")
    await conversations.fork(session, at=1, new_conversation_id=f"{session}/fork")
    await conversations.delete(session)
    assert await store.history(session) == []
    fork = await conversations.load(f"{session}/fork")
    assert _texts(fork) == ["one"]


async def test_an_answer_that_is_lost_stores_nothing_twice(store: Store, session: str) -> None:
    for trouble in (LOST_AFTER, LOST_BEFORE):
        unsteady = RecollectConversations(cast(Store, Unsteady(store, trouble)))
        loaded = await unsteady.load(session) or Conversation(conversation_id=session)
        loaded.messages += _said(trouble)
        await unsteady.save(loaded)
    assert _texts(await unsteady.load(session)) == [LOST_AFTER, LOST_BEFORE]


async def test_what_stays_unknown_says_what_to_do_without_a_turn_id(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    unsteady = RecollectConversations(cast(Store, Unsteady(store, *lost_for_good() * 2)))
    said = Conversation(conversation_id=session, messages=[*_said("hello")])
    with pytest.raises(OutcomeUnknown, match="load the conversation"):
        await unsteady.save(said)
    assert _texts(await unsteady.load(session)) == ["hello"]
    with pytest.raises(OutcomeUnknown, match="load the conversation"):
        await unsteady.delete(session)


async def test_what_is_emptied_is_deleted(store: Store, session: str) -> None:
    await _begun(store, session, "hello")
    unsteady = RecollectConversations(cast(Store, Unsteady(store, None, REFUSED)))
    await unsteady.delete(session)
    assert await unsteady.load(session) is None
    assert session not in [record.conversation_id for record in await unsteady.list_conversations()]
    await _begun(store, session, "again")
    assert _texts(await unsteady.load(session)) == ["again"]


async def test_the_same_message_twice_is_two_messages(store: Store, session: str) -> None:
    [again] = _said("yes")
    conversations = RecollectConversations(store)
    conversation = Conversation(conversation_id=session, messages=[again, again])
    await conversations.save(conversation)
    conversation.messages.append(again)
    await conversations.save(conversation)
    assert _texts(await conversations.load(session)) == ["yes", "yes", "yes"]


async def test_others_can_read_it_and_say_something_too(store: Store, session: str) -> None:
    conversations = RecollectConversations(store)
    image = BinaryImage(b"\x00\x01", media_type="image/png")
    messages: Sequence[ModelMessage] = [
        ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart(["What is this?", image])]),
        ModelResponse(parts=[ThinkingPart("Two bytes."), TextPart("Nothing.")]),
        ModelRequest(parts=[ToolReturnPart("look", "dark", tool_call_id="c")]),
    ]
    await conversations.save(Conversation(conversation_id=session, messages=list(messages)))
    read = [cast(Message, item.message) for item in await store.history(session)]
    assert [(message.role, message.text) for message in read] == [
        ("user", "Be brief.\nWhat is this?"),
        ("assistant", "Two bytes.\nNothing."),
        ("tool", "dark"),
    ]
    await store.append(session, [Message("user", "from elsewhere")])
    await store.annotate(session, {"title": "bytes"})
    loaded = await conversations.load(session)
    assert loaded is not None
    loaded.messages += _said("more")
    await conversations.save(loaded)
    loaded = await conversations.load(session)
    assert loaded is not None
    assert loaded.messages[:3] == messages
    assert len(loaded.messages) == 4


async def test_an_id_that_an_application_kept_finds_its_entry(store: Store, session: str) -> None:
    conversations = RecollectConversations(store, prefix=f"{session}/")
    entries = await conversations.save(Conversation(conversation_id="c", messages=_said("one", "two")))
    kept = str(entries[0].id)
    assert (await conversations.read_entry(kept)).message == entries[0].message
    forked = await conversations.fork("c", from_entry=kept)
    assert _texts(forked) == ["one"]
    with pytest.raises(KeyError):
        await conversations.read_entry("nobody's")


async def test_what_is_not_json_is_refused_before_anything_is_written(store: Store, session: str) -> None:
    conversations = RecollectConversations(store)
    for value in (object(), circle(), deep()):
        answer = ToolReturnPart("tool", value, tool_call_id="1")
        said = Conversation(conversation_id=session, messages=[ModelRequest(parts=[answer])])
        waiting = Conversation(
            conversation_id=session,
            messages=_said("one"),
            deferred_tool_requests=DeferredToolRequests(metadata={"1": {"of": value}}),
        )
        for conversation, what in ((said, "messages"), (waiting, "record")):
            with pytest.raises(Refused, match=what):
                await conversations.save(conversation)
            assert await conversations.load(session) is None


async def test_a_fork_of_what_is_gone_is_a_conflict(store: Store, session: str) -> None:
    conversations = await _begun(store, session, "one")
    record = await conversations.read_record(session)
    assert record is not None
    await conversations.delete(session)
    fork = ConversationRecord(conversation_id=f"{session}/fork", head_id=record.head_id, forked_from=session)
    with pytest.raises(ConversationConflict):
        await conversations.write_record(fork, expected_revision=None)


def test_an_id_that_knows_its_conversation_can_be_pickled() -> None:
    kept = pickle.loads(pickle.dumps(EntryId("e", "c")))
    assert (kept, kept.conversation) == ("e", "c")


@pytest.mark.parametrize("broken", ["one", "two", "three"])
async def test_a_damaged_entry_keeps_its_place(tmp_path: Path, broken: str) -> None:
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        conversations = await _begun(store, "s", "one", "two", "three")
        _break(tmp_path / "memory.db", broken)
        loaded = await conversations.load("s")
        texts = _texts(loaded)
        assert [text for text in texts if "cannot be read" not in text] == [
            text for text in ("one", "two", "three") if text != broken
        ]
        assert "cannot be read" in texts[("one", "two", "three").index(broken)]
        limited = await conversations.load("s", limit=2)
        assert _texts(limited) == texts[1:]
        assert loaded is not None
        loaded.messages += _said("four")
        await conversations.save(loaded)
        assert _texts(await conversations.load("s")) == [*texts, "four"]


def _break(path: Path, text: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        changed = database.execute(
            "UPDATE recollect_messages SET record = CAST(replace(CAST(record AS TEXT), ?, 'X') AS BLOB)"
            " WHERE instr(CAST(record AS TEXT), ?)",
            (f'"{text}"', f'"{text}"'),
        )
        assert changed.rowcount == 1


# ---- a whole agent


async def test_an_agent_remembers_in_another_process(store: Store, session: str) -> None:
    """Two agents that share nothing but the store."""
    asked: list[int] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        asked.append(len(messages))
        return ModelResponse(parts=[TextPart(f"answer {len(messages)}")])

    for question in ("I am Li.", "Who am I?"):
        conversations = RecollectConversations(store)
        conversation = await conversations.load(session) or Conversation(conversation_id=session)
        result = await Agent(FunctionModel(answer)).run(question, conversation=conversation)
        await conversations.save(result)
    assert asked == [1, 3]
    texts = [cast(Message, item.message).text for item in await store.history(session)]
    assert texts == ["I am Li.", "answer 1", "Who am I?", "answer 3"]
    [record] = await RecollectConversations(store, prefix=session).list_conversations()
    assert record.usage.requests == 2
