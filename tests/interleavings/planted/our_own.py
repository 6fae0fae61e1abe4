"""What recollect itself is made of, as a target: its synchronous stores, long-term memory, and the chat's handlers.

Nothing is wrong with them, except with `two_summarisers`, `chat_looks_first` and `chat_forgets_once`, which lack one
precaution each.

The checkers compare messages, so a message travels whole, encoded, as what the user says; the model repeats it, so that
it is also the one fact in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import httpx
import msgspec

from recollect.chat import app as chat_app
from recollect.chat.service import ChatService, StoredTurn
from recollect.chat.settings import ChatSettings
from recollect.composite import conversation_id
from recollect.errors import OutcomeUnknown, Refused
from recollect.message import Message, new_id
from recollect.opening import open_store as open_async
from recollect.recall import Recall, open_recall
from recollect.recall.llm import SUMMARISE
from recollect.recall.rows import CursorMoved, MemoryWrite, Written
from recollect.store import Store
from recollect.sync import open_store
from recollect.verify.engines import Endpoint
from recollect.verify.recall_targets import RecallTarget

Read = list[dict[str, str]]


def _plain(message: Message) -> str:
    """Without its id and time, so that a retry says the same."""
    return json.dumps({"role": message.role, "content": message.text})


def _address(endpoint: Endpoint) -> str:
    return f"{endpoint.url}?policy={endpoint.policy}" if endpoint.engine == "sqlite" else endpoint.url


# ---- the same stores without async


def sync_sqlite(endpoint: Endpoint) -> Any:
    return open_store(_address(endpoint))


def sync_redis(endpoint: Endpoint) -> Any:
    return open_store(endpoint.url)


# ---- long-term memory


class _Repeats:
    """A model that finds one fact in every message: all of it."""

    label = "repeats"

    async def complete(self, messages: Sequence[Message]) -> str:
        return messages[-1].text if messages[0].text == SUMMARISE else "Noted."


async def memories(endpoint: Endpoint) -> RecallTarget:
    """Facts as they are given; no conversation, and no index."""
    return RecallTarget(await open_recall(_address(endpoint)))


class Summarised(RecallTarget):
    """Facts that a summariser finds in the conversation, which is stored first."""

    def __init__(self, recall: Recall, conversations: Store) -> None:
        super().__init__(recall)
        self._conversations = conversations

    async def append(self, session: str, messages: Sequence[Message], *, turn: str | None = None) -> None:
        said = [Message("user", _plain(message)) for message in messages]
        await self.recall.remember(session, said, session="", turn=turn)

    async def history(self, session: str) -> Read:  # type: ignore[override]
        return [json.loads(memory.text) for memory in reversed(await self.recall.memories(session))]

    async def close(self) -> None:
        await self.recall.close()
        await self._conversations.close()


async def summarised(endpoint: Endpoint) -> Summarised:
    store = await open_async(_address(endpoint))
    return Summarised(await open_recall(_address(endpoint), conversations=store, llm=_Repeats()), store)


class _NoCompareAndSet:
    """Rows whose cursor goes where the last summariser wants it."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    async def write(self, write: MemoryWrite) -> Written:
        try:
            return await self._rows.write(write)  # type: ignore[no-any-return]
        except CursorMoved as moved:
            assert write.cursor is not None
            cursor = msgspec.structs.replace(write.cursor, expect=moved.actual)
            return await self._rows.write(msgspec.structs.replace(write, cursor=cursor))  # type: ignore[no-any-return]


async def two_summarisers(endpoint: Endpoint) -> Summarised:
    """Two that read the same message both store its fact."""
    found = await summarised(endpoint)
    rows: Any = _NoCompareAndSet(found.recall.rows)
    found.recall.rows = rows
    return found


# ---- the chat's handlers


class _Forgotten(Exception):
    """The message was stored, and its conversation forgotten since."""


class Chat:
    """The real application, called in this process. A session of the program is a user with one conversation.

    A message that its sender was told is forgotten must be gone once the forget has ended. The checkers cannot know,
    because the write overlaps the forget; so it is looked up here.
    """

    service: type[ChatService] = ChatService
    forgets = "/history"

    def __init__(self) -> None:
        self._forgotten: Read = []
        self._running = self._ended = 0
        """How many forgets of ours."""

    async def open(self, endpoint: Endpoint) -> Chat:
        settings = ChatSettings(
            memory=_address(endpoint), index="none", durability="written", allow_ephemeral=True
        )
        self._app = app = chat_app.create_app(settings)
        self._held = AsyncExitStack()
        await self._held.enter_async_context(app.router.lifespan_context(app))
        app.state.service.recall.llm = _Repeats()
        app.state.service.__class__ = self.service
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        await self._held.enter_async_context(self._client)
        return self

    async def append_message(self, session: str, message: Message, *, turn: str | None = None) -> None:
        body = {"user": session, "message": _plain(message), "turn": turn}
        ended_before = self._ended
        try:
            await self._ask("POST", "/chat", json=body)
        except _Forgotten:  # it was stored, so this is no failure
            self._forgotten.append(json.loads(_plain(message)))
            if self._ended > ended_before:
                await self._check(session)

    async def forget(self, session: str) -> None:
        self._running += 1
        await self._ask("DELETE", self.forgets, params={"user": session})
        self._running -= 1
        self._ended += 1
        await self._check(session)

    async def _check(self, session: str) -> None:
        if self._forgotten and not self._running:
            found = await self.get_history(session)
            assert not [each for each in self._forgotten if each in found], (
                "told to be forgotten, and still there"
            )

    async def get_history(self, session: str) -> Read:
        found = await self._ask("GET", "/history", params={"user": session})
        return [json.loads(item["text"]) for item in found if item["role"] == "user"]

    async def close(self) -> None:
        await self._held.aclose()

    async def _ask(self, method: str, path: str, **options: Any) -> Any:
        answer = await self._client.request(method, path, **options)
        if answer.is_success:
            return answer.json() if answer.content else None
        said = answer.json()
        kind = {"turn-forgotten": _Forgotten, "turn-reused": Refused, "outcome-unknown": OutcomeUnknown}
        raise kind.get(said["error"], RuntimeError)(said["detail"])


class ChatMemories(Chat):
    """The same, where a reader looks at what is remembered about the user."""

    forgets = "/everything"

    async def get_history(self, session: str) -> Read:
        found = await self._ask("GET", "/memories", params={"user": session})
        return [json.loads(item["text"]) for item in reversed(found)]


async def chat(endpoint: Endpoint) -> Chat:
    return await Chat().open(endpoint)


async def chat_memories(endpoint: Endpoint) -> Chat:
    return await ChatMemories().open(endpoint)


class _NotCounted:
    """Rows that do not notice that the user was forgotten while a summary was made."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    async def write(self, write: MemoryWrite) -> Written:
        if write.cursor is not None:
            _, times = await self._rows.summarised(write.user, write.cursor.conversation)
            cursor = msgspec.structs.replace(write.cursor, times_forgotten=times)
            write = msgspec.structs.replace(write, cursor=cursor)
        return await self._rows.write(write)  # type: ignore[no-any-return]


class ForgetsOnce(ChatMemories):
    async def open(self, endpoint: Endpoint) -> Chat:
        await super().open(endpoint)
        recall = self._app.state.service.recall
        recall.rows = _NotCounted(recall.rows)
        return self


async def chat_forgets_once(endpoint: Endpoint) -> Chat:
    """A fact is written after everything was forgotten, and stays."""
    return await ForgetsOnce().open(endpoint)


class _LooksFirst(ChatService):
    """Keeps the turns that it has heard itself, and looks there first; meanwhile others do the same."""

    async def hear(self, user: str, session: str, text: str, turn: str) -> StoredTurn:
        heard: dict[str, str] = self.__dict__.setdefault("heard", {})
        if turn not in heard:
            await self.store.history(conversation_id(user, session))
            heard[turn] = new_id()
        return await super().hear(user, session, text, heard[turn])


class LooksFirst(Chat):
    service = _LooksFirst


async def chat_looks_first(endpoint: Endpoint) -> Chat:
    return await LooksFirst().open(endpoint)
