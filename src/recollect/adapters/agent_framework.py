"""A history provider for Microsoft's Agent Framework, kept in a recollect store.

    from agent_framework import Agent
    from recollect import open_store
    from recollect.adapters.agent_framework import RecollectHistory

    async with open_store("sqlite:///memory.db") as store:
        agent = Agent(client, context_providers=[RecollectHistory(store)])
        await agent.run("Hello", session=agent.create_session(session_id="user-42"))

What one run says is one turn: the question and everything that came of it are stored together or not at all. Messages
need no ids, and the same message twice is two messages.

A message that can no longer be read keeps its place, as a system message that says so.
"""

from collections.abc import Sequence
from typing import Any

from recollect.adapters.carrying import LOOK_FIRST, carried, damage_note
from recollect.errors import MissingExtra, Refused, shown
from recollect.message import Damaged, Message, new_id
from recollect.store import Store, Stored

try:
    from agent_framework import HistoryProvider
    from agent_framework import Message as AgentMessage
except ImportError as error:
    raise MissingExtra(
        f"Agent Framework is not installed ({error.name}): pip install 'recollect[agent-framework]'"
    ) from error

AGENT_FRAMEWORK = "agent-framework"
"""The value of `shape` in a message's metadata: its one block is a message of this library."""


class RecollectHistory(HistoryProvider):
    """One provider for all sessions, by their ids, in an open store.

    The flags are those of `HistoryProvider`. With `last`, a run sees only that many of the latest messages, and no more
    are read. The caller closes the store.
    """

    def __init__(
        self, store: Store, *, source_id: str = "recollect", last: int | None = None, **flags: Any
    ) -> None:
        super().__init__(source_id, **flags)
        self._store = store
        self._last = last

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[AgentMessage]:
        """The messages of a session in order."""
        items = await self._store.history(_checked(session_id), last=self._last)
        return [_agent_message(stored) for stored in items]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[AgentMessage],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Adds the messages as one turn, all or none."""
        session = _checked(session_id)
        if not messages:
            return
        turn_messages = [_message(message) for message in messages]
        await carried(lambda turn: self._store.append(session, turn_messages, turn=turn), LOOK_FIRST)


def _checked(session_id: str | None) -> str:
    if session_id is None:
        raise Refused(
            "session_id: a conversation is found by its id: run the agent with "
            "session=agent.create_session(session_id=…)"
        )
    return session_id


def _message(message: AgentMessage) -> Message:
    if not isinstance(message, AgentMessage):
        raise Refused(f"messages: a Message of Agent Framework; not {shown(message)}")
    metadata = {"shape": AGENT_FRAMEWORK}
    return Message(
        str(message.role), [message.to_dict()], metadata=metadata, id=message.message_id or new_id()
    )


def _agent_message(stored: Stored) -> AgentMessage:
    message = stored.message
    if isinstance(message, Damaged):
        return AgentMessage("system", [damage_note(stored, message)])
    if message.metadata.get("shape") == AGENT_FRAMEWORK:
        return AgentMessage.from_dict(message.content[0])
    return AgentMessage(message.role, [message.text], message_id=message.id)
