"""The chat service without HTTP: what happens when a user says something, and what is known of the memory's health.

A message is stored, its facts are extracted and stored, and only then is it answered; the answer is stored too, under
the same turn. A retry of the turn finds all of that and gives the first answer again: nothing is said twice.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from recollect import opening
from recollect.chat.ephemeral import refuse_ephemeral
from recollect.chat.settings import Settings
from recollect.errors import CannotOpen, NotWritten, RecollectError, StoreReplaced
from recollect.message import Damaged, Message
from recollect.recall import OpenAIModel, Recall, StandIn, open_recall
from recollect.recall.llm import Labelled, ModelFailed, Streaming, answer_prompt
from recollect.recall.memory import Hit, Memory, conversation_id
from recollect.recall.recall import context_of
from recollect.store import Durability, Receipt, Store, Stored

PROBE_TIMEOUT_S = 3.0
"""A write that takes longer is one that fails, to who asks for the memory's health."""
PROBE_EVERY_S = 1.0

RETRIED_MAX = 50
"""How far behind a message its answer is looked for when its turn is sent again."""


class Used(msgspec.Struct, frozen=True):
    """A memory that went into an answer."""

    memory: Memory
    score: float


class Said(msgspec.Struct, frozen=True):
    """A message that is stored, and what is needed to answer it."""

    user: str
    session: str
    turn: str
    receipt: Receipt
    used: list[Used]
    noted: list[Memory]
    """Facts that this message added."""
    prompt: list[Message]
    answered: str | None
    """The answer, if this turn was answered before."""


class Health(msgspec.Struct, frozen=True):
    ok: bool
    same_store: bool
    """Whether the store is the one that was opened."""
    last_write_durable: bool
    """Whether the last write reached the durability asked for; true while nothing was written."""
    last_write_at: float | None
    error: str | None


class ChatService:
    def __init__(self, settings: Settings, store: Store, recall: Recall) -> None:
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
    async def open(cls, settings: Settings) -> "ChatService":
        """Opens the memory, or raises with the sentence that the command prints."""
        folder = settings.folder
        if folder is not None:
            await asyncio.to_thread(_prepare_folder, folder, settings.allow_ephemeral)
        store = await opening.open_store(
            settings.memory,
            durability=settings.durability,
            witness=None if settings.witness is None else Path(settings.witness),
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
            )
        except BaseException:
            await store.close()
            raise
        return cls(settings, store, recall)

    async def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        await self.recall.close()
        await self.store.close()

    # ---- talking

    async def hear(self, user: str, session: str, text: str, turn: str) -> Said:
        """Returns once the message and its facts are as durable as asked."""
        conversation = conversation_id(user, session)
        # The same turn is the same message: what is known to come from it is not used to answer it.
        message = Message("user", text, metadata={"turn": turn}, id=_message_id(conversation, turn))
        try:
            remembered = await self.recall.remember(user, [message], session=session, turn=turn)
        except RecollectError as error:
            self._failed(error)
            raise
        receipt = remembered.conversation
        assert receipt is not None
        self._written(remembered.durability)
        answered = await self._answer_of(conversation, receipt, turn)
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
        return Said(user, session, turn, receipt, used, remembered.memories, prompt, answered)

    async def answer(self, said: Said) -> str:
        """The whole answer, stored before it is returned."""
        if said.answered is not None:
            return said.answered
        return await self._keep(said, await self.recall.llm.complete(said.prompt))

    async def stream(self, said: Said) -> AsyncIterator[str]:
        """The answer in pieces; stored when the last piece was given."""
        llm = self.recall.llm
        if said.answered is not None or not isinstance(llm, Streaming):
            for piece in _pieces(await self.answer(said)):
                yield piece
            return
        pieces: list[str] = []
        async for piece in llm.stream(said.prompt):
            pieces.append(piece)
            yield piece
        await self._keep(said, "".join(pieces))

    async def _keep(self, said: Said, text: str) -> str:
        reply = Message("assistant", text, metadata={"turn": said.turn})
        conversation = conversation_id(said.user, said.session)
        try:
            receipt = await self.store.append(conversation, [reply], turn=f"{said.turn}/reply")
        except RecollectError as error:
            self._failed(error)
            raise
        self._written(receipt.durability)
        # Of two requests with one turn, the first answer counts.
        return await self._answer_of(conversation, said.receipt, said.turn) or text

    async def _answer_of(self, conversation: str, receipt: Receipt, turn: str) -> str | None:
        following = await self.store.history(conversation, after=receipt.last)
        for item in following[:RETRIED_MAX]:
            message = item.message
            if isinstance(message, Message) and (message.role, message.metadata.get("turn")) == (
                "assistant",
                turn,
            ):
                return message.text
        return None

    async def history(self, user: str, session: str, last: int) -> list[Stored]:
        return await self.store.history(conversation_id(user, session), last=last)

    async def forget_session(self, user: str, session: str) -> None:
        await self.store.forget(conversation_id(user, session))

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
        """Raises what a write raises now. One probe serves all who ask within a second: it costs an fsync."""
        now = time.monotonic()
        if self._probe is None or (self._probe.done() and now - self._probed_at > PROBE_EVERY_S):
            self._probed_at = now
            self._probe = asyncio.ensure_future(self.recall.rows.probe())
            self._probe.add_done_callback(_heard)
        ended, _ = await asyncio.wait([self._probe], timeout=PROBE_TIMEOUT_S)
        if not ended:
            raise NotWritten(f"a write was not acknowledged within {PROBE_TIMEOUT_S:g} s")
        self._probe.result()

    def engine(self) -> dict[str, Any]:
        """What answers, and what it is: said with every reply."""
        llm = self.recall.llm
        return {
            "llm": llm.label if isinstance(llm, Labelled) else type(llm).__name__,
            "stand_in": isinstance(llm, StandIn),
            "embedder": self.recall.embedder.name,
            "embedder_kind": self.recall.embedder.kind,
            "store": self.settings.memory.partition(":")[0],
            "durability": self.store.durability.value,
            "index": self.recall.index_state.value,
        }

    def _written(self, durability: Durability) -> None:
        self._last_write_at = time.time()
        self._last_write_durable = self._asked <= durability

    def _failed(self, error: RecollectError) -> None:
        if isinstance(error, StoreReplaced):
            self._replaced = str(error)
        if not isinstance(error, NotWritten | ModelFailed):
            self._last_write_at = time.time()
            self._last_write_durable = False


def _prepare_folder(folder: Path, allow_ephemeral: bool) -> None:
    if not allow_ephemeral:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        refuse_ephemeral(existing)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotOpen(f"{folder}: cannot be created ({error.strerror})") from error


def _heard(probe: "asyncio.Future[None]") -> None:
    """Nobody may be left to ask how a slow probe ended."""
    if not probe.cancelled():
        probe.exception()


def _message_id(conversation: str, turn: str) -> str:
    text = f"{conversation}\0{turn}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _until(recent: list[Stored], last: int) -> list[Message]:
    """The conversation up to the message that is answered."""
    return [
        item.message for item in recent if item.sequence <= last and not isinstance(item.message, Damaged)
    ]


def _quoted(hit: Hit, context: str) -> bool:
    return " ".join(hit.memory.text.split()) in context


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if number == 0 else f" {word}" for number, word in enumerate(words)]
