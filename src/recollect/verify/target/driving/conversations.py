"""Conversation stores of Pydantic AI: a conversation is loaded, a run adds messages, and it is saved as one object.

A save is compared with what was loaded; if somebody else has saved meanwhile, the application loads again.
"""

from __future__ import annotations

import inspect
from typing import Any, get_args

from recollect.verify.target.driving import TRIES, Course, Driven
from recollect.verify.target.interfaces import Interface, Mappings, parameters
from recollect.verify.target.native_messages import PydanticMessages, belongs_to


class Conversations(Driven):
    expected_errors = ("ConversationConflict",)

    @classmethod
    def knows(cls, store: Any) -> bool:
        """A new conversation is an object of the class that `save` names: `save(path: str)` saves something else."""
        try:
            inspect.signature(_kind_of(store)).bind(conversation_id="", messages=[])
        except (TypeError, ValueError):
            return False
        return _kind_of(store) is not Any

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._kind = _kind_of(store)
        self._pydantic = belongs_to(self._kind, "pydantic_ai")
        self.interface: Interface = PydanticMessages() if self._pydantic else Mappings()

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.store.save)

    def appending(self, session: str, messages: list[Any]) -> Course[None]:
        for tried in range(1, TRIES + 1):
            try:
                loaded = yield self.store.load(session)
                if loaded is None:
                    loaded = self._kind(conversation_id=session, messages=[])
                loaded.messages.extend(messages)
                yield self.store.save(loaded)
            except Exception as error:
                if tried == TRIES or not self.somebody_was_quicker(error):
                    raise
            else:
                return

    def reading(self, session: str) -> Course[list[Any]]:
        loaded = yield self.store.load(session)
        messages = [] if loaded is None else list(loaded.messages)
        return [PydanticMessages.as_mapping(one) for one in messages] if self._pydantic else messages


def _kind_of(store: Any) -> Any:
    """The first class that the annotation of `save` names."""
    named = next(iter(parameters(store.save).values())).annotation
    return next(iter(get_args(named)), named)
