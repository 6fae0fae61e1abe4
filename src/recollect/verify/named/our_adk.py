"""Our session service of the Agent Development Kit, driven as a runner does it: get the session, append an event."""

import uuid

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.genai.types import Content, Part

from recollect.adapters.adk import RecollectSessionService
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.named.our_store import shared_store

_APP, _USER = "verify", "user"


class SavedEvents:
    """One event for each message. A stale session means that nothing was stored, so it is read and tried again."""

    def __init__(self, service: RecollectSessionService) -> None:
        self._service = service

    async def append_message(self, session: str, message: str) -> None:
        content = Content(role="user", parts=[Part(text=message)])
        event = Event(id=str(uuid.uuid4()), author="user", content=content)
        while True:
            try:
                await self._service.append_event(await self._session(session), event)
            except StaleSessionError:
                continue
            return

    async def get_messages(self, session: str) -> list[str]:
        found = await self._service.get_session(app_name=_APP, user_id=_USER, session_id=session)
        return [] if found is None else [_text(event) for event in found.events]

    async def _session(self, name: str) -> Session:
        while True:
            found = await self._service.get_session(app_name=_APP, user_id=_USER, session_id=name)
            if found is not None:
                return found
            try:
                return await self._service.create_session(app_name=_APP, user_id=_USER, session_id=name)
            except AlreadyExistsError:
                continue


def _text(event: Event) -> str:
    parts = event.content.parts if event.content else None
    return "".join(part.text or "" for part in parts or [])


async def factory(endpoint: Endpoint) -> SavedEvents:
    return SavedEvents(RecollectSessionService(await shared_store(endpoint)))
