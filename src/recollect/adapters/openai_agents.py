"""A session for the OpenAI Agents SDK, kept in a recollect store.

    from agents import Agent, Runner
    from recollect import open_store
    from recollect.adapters.openai_agents import RecollectSession

    async with open_store("sqlite:///memory.db") as store:
        await Runner.run(agent, "Hello", session=RecollectSession("user-42", store))

Items are kept as they are, in order; the same item twice is two items. One `add_items` is one turn: it is stored whole
or not at all. The SDK has no id for it, so the session makes one and uses it for its own retries (`carrying`).

An item that can no longer be read keeps its place, as a system message that says so.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from recollect.adapters.carrying import CALL_AGAIN, LOOK_FIRST, carried, damage_note, pop_last
from recollect.errors import MissingExtra
from recollect.message import Damaged
from recollect.shapes import from_openai, to_openai
from recollect.store import Store, Stored

try:
    from agents.memory import SessionSettings
except ImportError as error:
    raise MissingExtra(
        f"the OpenAI Agents SDK is not installed ({error.name}): pip install 'recollect[openai-agents]'"
    ) from error

if TYPE_CHECKING:
    from agents import TResponseInputItem


class RecollectSession:
    """`agents.Session`: one conversation, by its id, in an open store.

    Creating one costs nothing and reads nothing: each request may create its own. The `limit` of `session_settings` is
    used when `get_items` is called without one. The caller closes the store.
    """

    session_settings: "SessionSettings | None"

    def __init__(
        self,
        session_id: str,
        store: Store,
        *,
        session_settings: "SessionSettings | Mapping[str, Any] | None" = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = (
            SessionSettings(**session_settings) if isinstance(session_settings, Mapping) else session_settings
        )
        self._store = store

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """The items in order: the latest `limit`, or all. A negative limit is all, as in the SDK's own sessions."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        last = None if limit is None or limit < 0 else limit
        items = await self._store.history(self.session_id, last=last)
        return [_item(stored) for stored in items]

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Adds the items as one turn, all or none."""
        if not items:
            return
        # Made once: a retry must send the same messages, ids included.
        messages = [from_openai(cast(Mapping[str, Any], item)) for item in items]
        await carried(lambda turn: self._store.append(self.session_id, messages, turn=turn), LOOK_FIRST)

    async def pop_item(self) -> "TResponseInputItem | None":
        """Removes and returns the latest item. Concurrent callers get different ones."""
        message = await pop_last(self._store, self.session_id)
        return None if message is None else cast("TResponseInputItem", to_openai(message))

    async def clear_session(self) -> None:
        """Forgets the conversation."""
        await carried(lambda _: self._store.forget(self.session_id), CALL_AGAIN)


def _item(stored: Stored) -> "TResponseInputItem":
    if isinstance(stored.message, Damaged):
        return {"role": "system", "content": damage_note(stored, stored.message)}
    return cast("TResponseInputItem", to_openai(stored.message))
