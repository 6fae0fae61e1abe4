"""A chat message history for LangChain, kept in a recollect store.

    from recollect.adapters.langchain import RecollectHistory
    from recollect.sync import open_store

    store = open_store("sqlite:///memory.db")
    chain = RunnableWithMessageHistory(model, lambda session_id: RecollectHistory(session_id, store))

Messages come back equal to what was added: tool calls, usage, ids and chunks included. The same message twice is two
messages. One `add_messages` is one turn: it is stored whole or not at all.

A message that can no longer be read keeps its place, as a message that says so.
"""

from collections.abc import Sequence
from typing import Any

from recollect.adapters.carrying import CALL_AGAIN, LOOK_FIRST, damage_note, new_turn, retried, tried
from recollect.errors import MissingExtra, OutcomeUnknown, Refused, shown
from recollect.message import Damaged
from recollect.shapes import from_langchain, to_langchain
from recollect.store import Stored
from recollect.sync import SyncStore

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        HumanMessage,
        SystemMessage,
        ToolMessage,
        message_to_dict,
        messages_from_dict,
    )

    from recollect.adapters.message_classes import made
except ImportError as error:
    raise MissingExtra(
        f"LangChain is not installed ({error.name}): pip install 'recollect[langchain]'"
    ) from error


class RecollectHistory(BaseChatMessageHistory):
    """One conversation, by its id, in an open store of `recollect.sync`.

    Creating one costs nothing and reads nothing. LangChain runs the async methods (`aadd_messages`, …) in threads,
    which the store is made for. The caller closes the store.
    """

    def __init__(self, session_id: str, store: SyncStore, *, last: int | None = None) -> None:
        """With `last`, `messages` has only that many of the latest messages, and no more are read."""
        super().__init__()
        self.session_id = session_id
        self._store = store
        self._last = last

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages in order."""
        stored = self._store.history(self.session_id, last=self._last)
        return [_message(_serialized(one)) for one in stored]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Adds the messages as one turn, all or none."""
        if not messages:
            return
        turn_messages = [from_langchain(message_to_dict(_checked(message))) for message in messages]
        turn = new_turn()
        try:
            self._store.append(self.session_id, turn_messages, turn=turn)
        except OutcomeUnknown as error:
            unknown = error
            self._store.run(
                lambda store: retried(
                    lambda turn: store.append(self.session_id, turn_messages, turn=turn),
                    turn,
                    unknown,
                    LOOK_FIRST,
                )
            )

    def clear(self) -> None:
        """Forgets the conversation."""
        self._store.run(lambda store: tried(lambda _: store.forget(self.session_id), CALL_AGAIN))


def _checked(message: object) -> BaseMessage:
    if not isinstance(message, BaseMessage):
        raise Refused(
            f"messages: a message of LangChain, such as HumanMessage('hello'); not {shown(message)}"
        )
    return message


_USUAL: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}


def _message(serialized: dict[str, Any]) -> BaseMessage:
    kind = _USUAL.get(serialized["type"])
    if kind is not None:
        return made(kind, serialized["data"])
    message: BaseMessage = messages_from_dict([serialized])[0]
    return message


def _serialized(stored: Stored) -> dict[str, Any]:
    if isinstance(stored.message, Damaged):
        # A human message, because every model accepts one anywhere in a conversation.
        return {"type": "human", "data": {"content": damage_note(stored, stored.message)}}
    return to_langchain(stored.message)
