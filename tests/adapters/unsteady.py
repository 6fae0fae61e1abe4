"""A store whose answers get lost, as they do when a connection breaks after the engine has done its work."""

from collections.abc import Sequence
from typing import Any

from recollect import Message, NotWritten, OutcomeUnknown, Receipt, Store

LOST_AFTER = "after"
"""The engine did it, and the answer was lost."""
LOST_BEFORE = "before"
"""The request was lost."""
REFUSED = "refused"
"""The connection was not accepted: this one was certainly not written."""


class Unsteady:
    """Everything goes to a real store; changes meet one trouble each, in this order, until there is none left."""

    def __init__(self, store: Store, *troubles: str) -> None:
        self._store = store
        self.troubles = list(troubles)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, session: str, messages: Sequence[Message], **options: Any) -> Receipt:
        return await self._meeting(self._store.append, session, messages, **options)

    async def retract(self, session: str, *sequences: int, **options: Any) -> Receipt:
        return await self._meeting(self._store.retract, session, *sequences, **options)

    async def _meeting(self, change: Any, *given: Any, **options: Any) -> Receipt:
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble == REFUSED:
            raise NotWritten("the connection was refused")
        if trouble == LOST_BEFORE:
            raise OutcomeUnknown("the connection broke")
        receipt: Receipt = await change(*given, **options)
        if trouble == LOST_AFTER:
            raise OutcomeUnknown("the connection broke")
        return receipt
