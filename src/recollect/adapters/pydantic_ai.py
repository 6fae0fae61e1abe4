"""A conversation store for Pydantic AI, kept in a recollect store.

    from recollect import open_store
    from recollect.adapters.pydantic_ai import RecollectConversations

    async with open_store("sqlite:///memory.db") as store:
        conversations = RecollectConversations(store)
        conversation = await conversations.load("user-42") or Conversation(conversation_id="user-42")
        result = await agent.run("Hello", conversation=conversation)
        await conversations.save(result)

A conversation is a session of the store. Each entry is a message there, with the entry before it in its metadata. What
Pydantic AI calls the record (where the history ends, the usage, the scope) travels in the metadata of the last message
of each save, so messages and record are stored together, whole or not at all, and the record is found by reading one
message. A save without new messages, such as a branch, stores a message without text to carry it.

A revision is checked twice: here against the record, and by the store against the session's position (`expect`).
The loser gets `ConversationConflict`.

A fork copies the entries it keeps, so that every conversation can be deleted, or erased, without touching another.

An entry that can no longer be read keeps its place, as a system prompt that says so.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

from recollect.adapters.carrying import carried, damage_note
from recollect.errors import Conflict, MissingExtra, NotWritten, OutcomeUnknown, Refused
from recollect.message import Damaged, Message
from recollect.store import Store, Stored

try:
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        SystemPromptPart,
    )
except ImportError as error:
    raise MissingExtra(
        f"Pydantic AI is not installed ({error.name}): pip install 'recollect[pydantic-ai]'"
    ) from error

PYDANTIC_AI = "pydantic-ai"
"""The value of `shape` in a message's metadata: its one block is a message of this library, or it has none."""

LISTED_AT_ONCE = 32
"""How many conversations are read at the same time to list them."""

_LOAD_IT = "load the conversation, which shows whether it was done"

_RECORDS = TypeAdapter(ConversationRecord)


class EntryId(str):
    """An entry's id that knows the conversation it was read from: entries are looked up by their id alone."""

    __slots__ = ("conversation",)
    conversation: str

    def __new__(cls, entry_id: str, conversation: str) -> "EntryId":
        made = super().__new__(cls, entry_id)
        made.conversation = conversation
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.conversation


class RecollectConversations(ConversationStore):
    """All conversations of an open store.

    The session of a conversation is its id, after `prefix`. Listing reads the end of every session with that prefix, so
    give one if the store keeps other sessions as well. The caller closes the store.
    """

    def __init__(self, store: Store, *, prefix: str = "") -> None:
        self._store = store
        self._prefix = prefix

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation, or None if the store does not have it."""
        session = self._prefix + conversation_id
        items = await self._store.history(session, last=1)
        if not items:
            return None
        if (record := _record_in(items[0], conversation_id)) is not None:
            return record
        # Somebody else has appended here, or the last one cannot be read: the record is in an earlier one.
        return _latest_record(await self._store.history(session), conversation_id)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """The records, or those of a scope, the latest saved first."""
        sessions = [session async for session in self._store.sessions(prefix=self._prefix)]
        records: list[ConversationRecord] = []
        for start in range(0, len(sessions), LISTED_AT_ONCE):
            names = [session[len(self._prefix) :] for session in sessions[start : start + LISTED_AT_ONCE]]
            read = await asyncio.gather(*[self.read_record(name) for name in names])
            records += [record for record in read if record and (scope is None or record.scope == scope)]
        records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Stores the record and its new entries as one turn. `ConversationConflict` if somebody else was faster."""
        while True:
            position, head_id = await self._expected(record.conversation_id, expected_revision)
            parent = new_entries[0].parent_id if new_entries else record.head_id
            copies = [] if parent in (None, head_id) else await self._copies(record, parent)
            messages = _messages(record, [*copies, *new_entries])

            async def write(
                turn: str, messages: list[Message] = messages, position: int = position
            ) -> object:
                session = self._prefix + record.conversation_id
                return await self._store.append(session, messages, turn=turn, expect=position)

            try:
                await carried(write, _LOAD_IT)
            except Conflict:
                continue  # the record tells whether this was another save
            return

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Deletes a conversation and all of its entries. Its forks have their own."""
        session = self._prefix + conversation_id
        while True:
            position, _ = await self._expected(conversation_id, expected_revision)

            async def empty(turn: str, position: int = position) -> int:
                receipt = await self._store.replace(session, [], turn=turn, expect=position)
                return receipt.last

            try:
                # `forget` alone does not move the position, so a save that began before it would not notice.
                emptied = await carried(empty, _LOAD_IT)
            except Conflict:
                continue
            break

        async def forget(_: str) -> object:
            return await self._store.forget(session, expect=emptied)

        try:
            await carried(forget, _LOAD_IT)
        except (NotWritten, OutcomeUnknown):
            return  # it is empty, and so deleted; if it was created again, it is not ours to forget

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """The entry with this id; `KeyError` if there is none."""
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to `head_id` in order, or only the last `limit` of them."""
        if head_id is None or limit == 0:
            return []
        conversation = await self._home(head_id)
        session = self._prefix + conversation
        # The history is nearly always the end of the session; branches make it reach further back.
        window = limit
        while True:
            items = await self._store.history(session, last=window)
            all_read = window is None or len(items) < window
            entries = _chain(items, head_id, conversation, limit, all_read)
            if window is None or all_read or _whole(entries, limit):
                break
            window *= 4
        if not entries or not _whole(entries, limit):
            raise KeyError(head_id if not entries else entries[0].parent_id)
        return entries

    async def _home(self, entry_id: str) -> str:
        """The conversation that an entry is in. Only an id that an application kept has to be searched for."""
        if isinstance(entry_id, EntryId):
            return entry_id.conversation
        async for session in self._store.sessions(prefix=self._prefix):
            if await self._store.find(session, entry_id) is not None:
                return session[len(self._prefix) :]
        raise KeyError(entry_id)

    async def _expected(self, conversation_id: str, revision: str | None) -> tuple[int, str | None]:
        """The session's position and head, if its record still has this revision; else `ConversationConflict`."""
        position = await self._store.position(self._prefix + conversation_id)
        record = await self.read_record(conversation_id)
        if (None if record is None else record.revision) != revision:
            raise ConversationConflict(conversation_id)
        return position, None if record is None else record.head_id

    async def _copies(self, record: ConversationRecord, parent: str) -> list[ConversationEntry]:
        """The entries of another conversation that this one goes on from: those of a fork."""
        own = record.conversation_id
        source = parent.conversation if isinstance(parent, EntryId) else record.forked_from
        if source == own or await self._store.find(self._prefix + own, str(parent)) is not None:
            return []
        try:
            if source is None:
                raise KeyError(parent)
            return await self.read_history(EntryId(parent, source))
        except KeyError:  # the other conversation was deleted meanwhile
            raise ConversationConflict(own) from None


def _messages(record: ConversationRecord, entries: Sequence[ConversationEntry]) -> list[Message]:
    messages = [_message(entry) for entry in entries]
    try:
        carried_record = {"record": _RECORDS.dump_python(record, mode="json")}
    except ValueError as error:  # of what has no JSON, goes round in a circle, or is too deep
        raise Refused(f"record: what is kept is JSON, or can be made JSON: {error}") from None
    if not messages:
        return [Message("system", [], metadata={"shape": PYDANTIC_AI, **carried_record})]
    last = messages[-1]
    messages[-1] = Message(
        last.role, last.content, last.timestamp, {**last.metadata, **carried_record}, last.id
    )
    return messages


def _message(entry: ConversationEntry) -> Message:
    try:
        [native] = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
    except ValueError as error:  # of what has no JSON, goes round in a circle, or is too deep
        raise Refused(f"messages: what is kept is JSON, or can be made JSON: {error}") from None
    parent = None if entry.parent_id is None else str(entry.parent_id)
    metadata = {"shape": PYDANTIC_AI, "parent": parent}
    return Message(_role(entry.message), [native], metadata=metadata, id=str(entry.id))


def _role(message: ModelMessage) -> str:
    if message.kind == "response":
        return "assistant"
    kinds = {part.part_kind for part in message.parts}
    if kinds and kinds <= {"tool-return", "retry-prompt"}:
        return "tool"
    return "system" if kinds == {"system-prompt"} else "user"


def _record_in(item: Stored, conversation_id: str) -> ConversationRecord | None:
    if isinstance(item.message, Damaged) or (kept := item.message.metadata.get("record")) is None:
        return None
    record = _RECORDS.validate_python(kept)
    record.head_id = None if record.head_id is None else EntryId(record.head_id, conversation_id)
    record.branches = [EntryId(tip, conversation_id) for tip in record.branches]
    return record


def _latest_record(items: Sequence[Stored], conversation_id: str) -> ConversationRecord | None:
    """The last record that can be read. Anything unreadable after it becomes the end of the history, so that it
    shows."""
    damaged: int | None = None
    for item in reversed(items):
        if isinstance(item.message, Damaged):
            damaged = damaged or item.sequence
        elif (record := _record_in(item, conversation_id)) is not None:
            if damaged is None:
                return record
            return dataclasses.replace(
                record,
                head_id=EntryId(_damaged_id(damaged), conversation_id),
                revision=f"{record.revision}-{_damaged_id(damaged)}",
            )
    if damaged is None:
        return None
    head = EntryId(_damaged_id(damaged), conversation_id)
    return ConversationRecord(conversation_id=conversation_id, head_id=head, revision=_damaged_id(damaged))


# ---- the chain of entries


_DAMAGED = "damaged-"


def _damaged_id(sequence: int) -> str:
    """The id of an entry whose own cannot be read."""
    return f"{_DAMAGED}{sequence}"


def _chain(
    items: Sequence[Stored], head_id: str, conversation: str, limit: int | None, all_read: bool
) -> list[ConversationEntry]:
    """The entries that lead to `head_id`, as far back as these items go."""
    places = {_id_of(item): index for index, item in enumerate(items)}
    entries: list[ConversationEntry] = []
    wanted: str | None = head_id
    index = len(items)
    while wanted is not None and (limit is None or len(entries) < limit):
        found = places.get(wanted)
        if found is None:
            found = _damaged_before(items, index)
        if found is None or (found == 0 and not all_read and isinstance(items[0].message, Damaged)):
            break  # what it follows is in none of these
        entry = _entry(items, found, wanted, conversation)
        entries.append(entry)
        wanted, index = entry.parent_id, found
    entries.reverse()
    return entries


def _whole(entries: Sequence[ConversationEntry], limit: int | None) -> bool:
    return bool(entries) and (entries[0].parent_id is None or len(entries) == limit)


def _id_of(item: Stored) -> str:
    return _damaged_id(item.sequence) if isinstance(item.message, Damaged) else item.message.id


def _damaged_before(items: Sequence[Stored], index: int) -> int | None:
    """An entry that is referred to but not found is the nearest unreadable one before it."""
    for place in range(index - 1, -1, -1):
        if isinstance(items[place].message, Damaged):
            return place
    return None


def _entry(items: Sequence[Stored], index: int, entry_id: str, conversation: str) -> ConversationEntry:
    item = items[index]
    if isinstance(item.message, Damaged):
        note = ModelRequest(parts=[SystemPromptPart(damage_note(item, item.message))])
        before = next((_id_of(other) for other in reversed(items[:index]) if _is_entry(other)), None)
        return _made(entry_id, before, note, conversation)
    metadata: dict[str, Any] = item.message.metadata
    [message] = ModelMessagesTypeAdapter.validate_python(item.message.content)
    return _made(entry_id, metadata.get("parent"), message, conversation)


def _is_entry(item: Stored) -> bool:
    return isinstance(item.message, Damaged) or "parent" in item.message.metadata


def _made(entry_id: str, parent: str | None, message: ModelMessage, conversation: str) -> ConversationEntry:
    return ConversationEntry(
        id=EntryId(entry_id, conversation),
        parent_id=None if parent is None else EntryId(parent, conversation),
        message=message,
    )
