"""Session services of Google's ADK: a session is fetched, or made, and an event is appended to it.

Somebody else may have appended meanwhile; the service says that the session is stale, and the application fetches it
again.

ADK cuts the blanks off a session's id, and says so in the session that it returns. The id that was asked for then has
no session of its own: nothing is appended to it, and it reads as empty.
"""

from __future__ import annotations

import inspect
from typing import Any

from recollect.errors import Refused
from recollect.verify.target.driving import TRIES, Course, Driven
from recollect.verify.target.interface_choice import interface_of
from recollect.verify.target.interfaces import parameters
from recollect.verify.target.native_messages import AdkEvents, belongs_to

APP, USER = "recollect", "somebody"


class Events(Driven):
    expected_errors = ("StaleSessionError", "AlreadyExistsError")

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        taken = list(parameters(store.append_event).values())
        self._adk = len(taken) > 1 and belongs_to(taken[1].annotation, "google.adk")
        self.interface = AdkEvents() if self._adk else interface_of("", {"event": taken[1]})
        if callable(getattr(store, "delete_session", None)):
            self.forget = self._forget

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.store.append_event)

    def appending(self, session: str, messages: list[Any]) -> Course[None]:
        for event in messages:
            for tried in range(1, TRIES + 1):
                try:
                    current = yield self.store.get_session(**_place(session))
                    if current is None:
                        current = yield self.store.create_session(**_place(session))
                    if _renamed(current, session):
                        raise Refused(f"session {session!r}: it is kept as {current.id!r}")
                    yield self.store.append_event(current, event)
                except Exception as error:
                    if tried == TRIES or not self.somebody_was_quicker(error):
                        raise
                else:
                    break

    def reading(self, session: str) -> Course[list[Any]]:
        found = yield self.store.get_session(**_place(session))
        events = [] if found is None or _renamed(found, session) else list(found.events)
        return [AdkEvents.as_mapping(event) for event in events] if self._adk else events

    def _forget(self, session: str) -> Any:
        return self.store.delete_session(**_place(session))


def _renamed(found: Any, session: str) -> bool:
    """Whether the session that came back says that it has the id without its blanks."""
    told = getattr(found, "id", None)
    return told != session and told == session.strip()


def _place(session: str) -> dict[str, str]:
    return {"app_name": APP, "user_id": USER, "session_id": session}
