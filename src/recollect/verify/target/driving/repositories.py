"""Session repositories of Strands Agents: an agent's messages are listed, and the next one is created under the next
number.
"""

from __future__ import annotations

import inspect
from typing import Any

from recollect.verify.target.driving import Course, Driven
from recollect.verify.target.interfaces import parameters
from recollect.verify.target.native_messages import StrandsMessages

AGENT = "recollect"


class Repository(Driven):
    interface = StrandsMessages()

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.store.create_message)

    def appending(self, session: str, messages: list[Any]) -> Course[None]:
        if not (yield from self._is_there(session)):
            yield from self._begin(session)
        listed = yield self.store.list_messages(session, AGENT)
        number = listed[-1].message_id + 1 if listed else 0
        for place, message in enumerate(messages, number):
            yield self.store.create_message(session, AGENT, self._made("create_message", message, place))

    def reading(self, session: str) -> Course[list[Any]]:
        if not (yield from self._is_there(session)):
            return []
        listed = yield self.store.list_messages(session, AGENT)
        return [StrandsMessages.as_mapping(one.to_message()) for one in listed]

    def _is_there(self, session: str) -> Course[bool]:
        agent = yield self.store.read_agent(session, AGENT)
        return agent is not None

    def _begin(self, session: str) -> Course[None]:
        if (yield self.store.read_session(session)) is None:
            yield self.store.create_session(self._kind("create_session", 0)(session, "AGENT"))
        yield self.store.create_agent(session, self._kind("create_agent", 1)(AGENT, {}, {}))

    def _made(self, method: str, message: Any, place: int) -> Any:
        return self._kind(method, 2).from_message(message, place)

    def _kind(self, method: str, place: int) -> Any:
        """The class that the method's own annotation names."""
        return list(parameters(getattr(self.store, method)).values())[place].annotation
