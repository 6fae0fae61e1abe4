"""The chat service without HTTP: what happens when a user says something, and how healthy the memory is.

A message is stored, its facts are extracted and stored, and only then is it answered; the answer is stored too, under
the same turn. A retry of the turn finds all of that and returns the first answer: nothing is said twice. If several
requests carry the same turn, each may ask the model; all of them return the answer that was stored first.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from recollect import opening, private, telemetry
from recollect.chat.ephemeral import refuse_ephemeral, why_it_forgets
from recollect.chat.settings import ChatSettings
from recollect.composite import composite_id, conversation_id
from recollect.errors import (
    CannotOpen,
    Conflict,
    NotFound,
    NotWritten,
    RecollectError,
    Refused,
    StoreReplaced,
    TurnReused,
    shorten,
)
from recollect.message import Damaged, Message
from recollect.recall import OpenAIModel, Recall, StandIn, open_recall
from recollect.recall.llm import Labelled, ModelFailed, Streaming, answer_prompt
from recollect.recall.memory import Hit, Memory, user_key
from recollect.recall.recall import context_of
from recollect.recall.rows import memory_of
from recollect.store import Durability, Receipt, Store, Stored

PROBE_TIMEOUT_S = 3.0
"""In a health check, a write that takes longer counts as failed."""
PROBE_EVERY_S = 1.0
PROBED = "recollect.chat health"
"""A session of the service's own: its metadata is written to see whether writes go through. No user's conversation can
have its name (`conversation_id`)."""
LOOKED_BACK = 4
"""How many messages of a conversation are read to say what it was about."""
LAST_SAID_LENGTH = 80


class TurnForgotten(RecollectError):
    """The turn was stored, by this request or an earlier one, and its conversation has been forgotten since. What was
    forgotten does not come back, and is not answered."""

    def __init__(self, turn: str) -> None:
        super().__init__(
            f"turn {shorten(turn)} was stored, and its conversation has been forgotten since; the message is no longer "
            "there: to have it remembered, send it with a new turn"
        )
        self.turn = turn

    def __reduce__(self) -> tuple[type["TurnForgotten"], tuple[str]]:
        return type(self), (self.turn,)


class Used(msgspec.Struct, frozen=True):
    """A memory that went into an answer."""

    memory: Memory
    score: float


class Answer(msgspec.Struct, frozen=True):
    """An answer that is stored."""

    text: str
    used: list[Used]
    """What it was made from, as far as it is still remembered."""


class StoredTurn(msgspec.Struct, frozen=True):
    """A message that is stored, and what is needed to answer it."""

    user: str
    session: str
    turn: str
    receipt: Receipt
    used: list[Used]
    """What an answer would be made from now."""
    noted: list[Memory]
    """Facts that this message added."""
    prompt: list[Message]
    answered: Answer | None
    """The answer, if this turn was answered before."""


class Conversation(msgspec.Struct, frozen=True):
    """One of a user's sessions, for a list of them."""

    session: str
    last_said: str
    """What the user said last in it, cut short; empty if that is too long ago or cannot be read."""
    updated_at: float | None


class Health(msgspec.Struct, frozen=True):
    ok: bool
    same_store: bool
    """Whether the store is the one that was opened."""
    last_write_durable: bool
    """Whether the last write reached the durability asked for; true while nothing was written."""
    last_write_at: float | None
    error: str | None


class ChatService:
    def __init__(self, settings: ChatSettings, store: Store, recall: Recall) -> None:
        self.settings = settings
        self.store = store
        self.recall = recall
        self._asked = Durability(settings.durability)
        self._last_write_durable = True
        self._last_write_at: float | None = None
        self._replaced: str | None = None
        self._probe: asyncio.Future[None] | None = None
        self._probed_at = 0.0

    @classmethod
    async def open(cls, settings: ChatSettings) -> "ChatService":
        """Opens the memory, or raises with the sentence that the command prints."""
        for folder in settings.folders:
            settings = await asyncio.to_thread(_prepare_folder, settings, folder)
        store = await opening.open_store(
            settings.store_url,
            durability=settings.durability,
            witness=None if settings.witness is None else Path(settings.witness),
            file_mode=settings.file_mode,
        )
        try:
            llm = (
                StandIn()
                if settings.model is None
                else OpenAIModel(settings.model, base_url=settings.base_url)
            )
            recall = await open_recall(
                settings.memory,
                index=settings.index_url,
                durability=settings.durability,
                conversations=store,
                llm=llm,
                file_mode=settings.file_mode,
            )
        except BaseException:
            await store.close()
            raise
        return telemetry.observed(cls(settings, store, recall), settings.memory, telemetry.CHAT)

    async def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        await self.recall.close()
        await self.store.close()

    # ---- talking

    async def hear(self, user: str, session: str, text: str, turn: str) -> StoredTurn:
        """Returns once the message and its facts are as durable as asked."""
        conversation = conversation_id(user, session)
        # The same turn has the same message id, so that facts from this message are not used to answer it.
        message = Message("user", text, metadata={"turn": turn}, id=_message_id(conversation, turn))
        try:
            remembered = await self.recall.remember(user, [message], session=session, turn=composite_id(turn))
        except TurnReused as error:
            raise TurnReused(session, turn) from error  # with the ids as the caller knows them
        except RecollectError as error:
            self._failed(error)
            raise
        receipt = remembered.conversation
        assert receipt is not None
        self._written(remembered.durability)
        message, reply = await self._said_before(session, receipt, message)
        found = await self.recall.search(user, text, self.settings.memories_per_reply)
        hits = [
            hit
            for hit in found.hits
            if hit.score >= self.settings.score_min and hit.memory.message != message.id
        ]
        recent = await self.store.history(conversation, last=self.settings.history_messages)
        context = context_of(
            msgspec.structs.replace(found, hits=hits), self.settings.budget_tokens, self.settings.score_min
        )
        prompt = [answer_prompt(context), *_until(recent, receipt.last)]
        used = [Used(hit.memory, hit.score) for hit in hits if _quoted(hit, context)]
        answered = None if reply is None else await self._answer(user, reply, used)
        return StoredTurn(user, session, turn, receipt, used, remembered.memories, prompt, answered)

    async def answer(self, said: StoredTurn) -> Answer:
        """The whole answer, stored before it is returned."""
        if said.answered is not None:
            return said.answered
        return await self.keep(said, await self.recall.llm.complete(said.prompt))

    async def pieces(self, said: StoredTurn) -> AsyncIterator[str]:
        """The answer, piece by piece as it is made. It counts once `keep` has stored it."""
        llm = self.recall.llm
        if said.answered is None and isinstance(llm, Streaming):
            async for piece in llm.stream(said.prompt):
                yield piece
            return
        text = said.answered.text if said.answered is not None else await llm.complete(said.prompt)
        for piece in _pieces(text):
            yield piece

    async def keep(self, said: StoredTurn, text: str) -> Answer:
        """Stores the turn's answer and returns the stored one: of several requests, the first one's counts."""
        if said.answered is not None:
            return said.answered
        made_from = [[used.memory.sequence, float(used.score)] for used in said.used]
        reply = Message("assistant", text, metadata={"turn": said.turn, "memories": made_from})
        conversation = conversation_id(said.user, said.session)
        if not await self._since(said):
            raise TurnForgotten(said.turn)
        receipt = None
        try:
            receipt = await self.store.append(conversation, [reply], turn=composite_id(said.turn, "reply"))
        except TurnReused:
            pass  # another request of this turn got another answer from the model, and was faster
        except RecollectError as error:
            self._failed(error)
            raise
        else:
            self._written(receipt.durability)
        stored = _reply_in(await self._since(said), said.turn)
        if stored is None:
            if receipt is not None:
                await self._take_back(receipt)
            raise TurnForgotten(said.turn)
        return await self._answer(said.user, stored, said.used)

    async def _since(self, said: StoredTurn) -> list[Stored]:
        """The message that is being answered and what follows; nothing if it has been forgotten."""
        since = await self.store.history(said.receipt.session, after=said.receipt.first - 1)
        return since if since and since[0].sequence == said.receipt.first else []

    async def _take_back(self, receipt: Receipt) -> None:
        """Removes an answer that was stored just after its conversation was forgotten: it may quote what was in it."""
        try:
            removed = await self.store.retract(receipt.session, receipt.first)
            if not await self.store.history(receipt.session, last=1):
                await self.store.forget(receipt.session, expect=removed.last)  # or it stays listed, empty
        except (NotFound, Conflict):
            pass  # forgotten as well, or taken back by another request of this turn; or the conversation goes on
        except RecollectError as error:
            self._failed(error)
            raise

    async def _answer(self, user: str, reply: Message, now: list[Used]) -> Answer:
        """A stored reply with the memories it names. Older releases' replies name none: then what is found now."""
        try:
            scores = dict(msgspec.convert(reply.metadata.get("memories"), list[tuple[int, float]]))
        except msgspec.ValidationError:
            return Answer(reply.text, now)
        if not scores:
            return Answer(reply.text, [])
        rows = await self.recall.rows.fetch(user_key(user), list(scores))
        used = [Used(memory_of(row.sequence, row.record), scores[row.sequence]) for row in rows]
        return Answer(reply.text, sorted(used, key=lambda each: list(scores).index(each.memory.sequence)))

    async def _said_before(
        self, session: str, receipt: Receipt, message: Message
    ) -> tuple[Message, Message | None]:
        """The message as stored, and its answer if it has one. Both are at or after the receipt."""
        turn = message.metadata["turn"]
        since = await self.store.history(receipt.session, after=receipt.first - 1)
        if not since or since[0].sequence != receipt.first:
            raise TurnForgotten(turn)
        stored = since[0].message
        if isinstance(stored, Damaged):
            return message, _reply_in(since, turn)
        if (stored.role, stored.content) != (message.role, message.content):
            # A turn older than fingerprints: the store took this message for a retry of it.
            raise TurnReused(session, turn)
        return stored, _reply_in(since, turn)

    async def history(self, user: str, session: str, last: int) -> list[Stored]:
        return await self.store.history(conversation_id(user, session), last=last)

    async def forget_session(self, user: str, session: str) -> None:
        await self.store.forget(conversation_id(user, session))

    async def conversations(self, user: str, limit: int) -> list[Conversation]:
        """The user's sessions, most recently changed first."""
        prefix = conversation_id(user, "")
        found: list[Conversation] = []
        async for conversation in self.store.sessions(prefix=prefix, updated_after=0):
            last_said = _last_said(await self.store.history(conversation, last=LOOKED_BACK))
            described = await self.store.describe(conversation)
            found.append(Conversation(conversation.removeprefix(prefix), last_said, described.updated))
            if len(found) == limit:
                break
        return found

    async def forget_everything(self, user: str) -> tuple[int, int]:
        """Forgets all memories and all conversations of the user; returns how many there were of each."""
        prefix = conversation_id(user, "")
        conversations = [name async for name in self.store.sessions(prefix=prefix)]
        for conversation in conversations:
            await self.store.forget(conversation)
        # Last: a message that is still being stored adds its facts after its conversation.
        return await self.recall.forget(user), len(conversations)

    # ---- health

    async def health(self) -> Health:
        error = self._replaced
        same = error is None
        try:
            await self.store.state("health")
            await self._check_writing()
        except StoreReplaced as replaced:
            same, error = False, str(replaced)
        except RecollectError as broken:
            error = str(broken)
        ok = error is None and self._last_write_durable
        return Health(ok, same, self._last_write_durable, self._last_write_at, error)

    async def _check_writing(self) -> None:
        """Raises what a write would raise now. One probe serves all who ask within a second: it costs an fsync."""
        now = time.monotonic()
        if self._probe is None or (self._probe.done() and now - self._probed_at > PROBE_EVERY_S):
            self._probed_at = now
            self._probe = asyncio.ensure_future(self._write_probe())
            self._probe.add_done_callback(_heard)
        ended, _ = await asyncio.wait([self._probe], timeout=PROBE_TIMEOUT_S)
        if not ended:
            raise NotWritten(f"a write was not acknowledged within {PROBE_TIMEOUT_S:g} s")
        self._probe.result()

    async def _write_probe(self) -> None:
        await self.recall.rows.probe()
        if self.settings.conversations is not None:
            await self.store.annotate(PROBED, {"probed": time.time()})

    def engine(self) -> dict[str, Any]:
        """The model, embedder, store and index behind the answers: part of every reply."""
        llm = self.recall.llm
        return {
            "llm": llm.label if isinstance(llm, Labelled) else type(llm).__name__,
            "stand_in": isinstance(llm, StandIn),
            "embedder": self.recall.embedder.name,
            "embedder_kind": self.recall.embedder.kind,
            "store": self.settings.store_url.partition(":")[0],
            "durability": self.store.durability.value,
            "index": self.recall.index_state.value,
        }

    def _written(self, durability: Durability) -> None:
        self._last_write_at = time.time()
        self._last_write_durable = self._asked <= durability

    def _failed(self, error: RecollectError) -> None:
        if isinstance(error, StoreReplaced):
            self._replaced = str(error)
        if not isinstance(error, NotWritten | ModelFailed | Refused):
            self._last_write_at = time.time()
            self._last_write_durable = False


def _prepare_folder(settings: ChatSettings, folder: Path) -> ChatSettings:
    """The settings with the durability that can be reached in that folder."""
    if not settings.allow_ephemeral:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        refuse_ephemeral(existing)
    try:
        private.make_folder(folder, settings.file_mode)
    except OSError as error:
        raise CannotOpen(f"{folder}: cannot be created ({error.strerror})") from error
    if why_it_forgets(folder) is None:
        return settings
    reached = min(Durability(settings.durability), Durability.WRITTEN)
    return msgspec.structs.replace(settings, durability=reached.value)


def _heard(probe: "asyncio.Future[None]") -> None:
    """Collects the result of a slow probe that nobody waits for any more."""
    if not probe.cancelled():
        probe.exception()


def _message_id(conversation: str, turn: str) -> str:
    text = composite_id(conversation, turn, separator="\0").encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _reply_in(items: list[Stored], turn: str) -> Message | None:
    for item in items:
        message = item.message
        if (
            isinstance(message, Message)
            and message.role == "assistant"
            and message.metadata.get("turn") == turn
        ):
            return message
    return None


def _last_said(recent: list[Stored]) -> str:
    for item in reversed(recent):
        if isinstance(item.message, Message) and item.message.role == "user":
            return item.message.text[:LAST_SAID_LENGTH]
    return ""


def _until(recent: list[Stored], last: int) -> list[Message]:
    """The conversation up to the message being answered."""
    return [
        item.message for item in recent if item.sequence <= last and not isinstance(item.message, Damaged)
    ]


def _quoted(hit: Hit, context: str) -> bool:
    return " ".join(hit.memory.text.split()) in context


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if number == 0 else f" {word}" for number, word in enumerate(words)]
