"""A store whose answers get lost, as they do when a connection breaks after the engine has done its work."""

from collections.abc import Callable
from functools import partial
from typing import Any

from recollect import NotWritten, OutcomeUnknown, Store
from recollect.adapters import carrying

LOST_AFTER = "after"
"""The engine did it, and the answer was lost."""
LOST_BEFORE = "before"
"""The request was lost."""
REFUSED = "refused"
"""The connection was not accepted: this one was certainly not written."""


CHANGES = frozenset({"append", "append_many", "retract", "replace", "forget"})


def lost_for_good() -> list[str]:
    """Every try is made, and no answer comes."""
    return [LOST_AFTER] * (1 + len(carrying.PAUSES_S))


class Unsteady:
    """Everything goes to a real store; changes meet one trouble each, in this order, until there is none left."""

    def __init__(self, store: Store, *troubles: str | None) -> None:
        self._store = store
        self.troubles = list(troubles)

    def __getattr__(self, name: str) -> Any:
        if name == "near":  # the way around this object
            raise AttributeError(name)
        method = getattr(self._store, name)
        return partial(self._meeting, method) if name in CHANGES else method

    async def _meeting(self, change: Callable[..., Any], *given: Any, **options: Any) -> Any:
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble == REFUSED:
            raise NotWritten("the connection was refused")
        if trouble == LOST_BEFORE:
            raise OutcomeUnknown("the connection broke")
        answer = await change(*given, **options)
        if trouble == LOST_AFTER:
            raise OutcomeUnknown("the connection broke")
        return answer
