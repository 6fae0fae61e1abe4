"""Session services of Google's Agent Development Kit: a session is fetched, and an event is appended to it."""

from typing import Any

from recollect.composite import parts_of
from recollect.errors import Refused
from recollect.verify.engines.endpoint import Endpoint


def sqlite(endpoint: Endpoint) -> Any:
    from google.adk.sessions.sqlite_session_service import (
        SqliteSessionService,  # each needs a driver of its own
    )

    return SqliteSessionService(str(endpoint.path))


def database(endpoint: Endpoint) -> Any:
    from google.adk.sessions import DatabaseSessionService

    return DatabaseSessionService(endpoint.url.replace("postgresql://", "postgresql+asyncpg://", 1))


def redis(endpoint: Endpoint) -> Any:
    from google.adk.integrations.redis import RedisSessionService, RedisSessionServiceConfig

    return RedisSessionService(RedisSessionServiceConfig(uri=endpoint.url))


class AdkSessions:
    """The sessions of every app and user, to be read: an id is made of all three names."""

    def __init__(self, service: Any) -> None:
        self._service = service

    async def append_message(self, session: str, message: dict[str, str]) -> None:
        raise Refused(f"session {session!r}: an audit only reads")

    async def get_messages(self, session: str) -> list[dict[str, Any]]:
        app, user, name = parts_of(session)
        found = await self._service.get_session(app_name=app, user_id=user, session_id=name)
        return [] if found is None else [_message(event) for event in found.events]


def _message(event: Any) -> dict[str, Any]:
    """With what an audit looks at: its id, its time, and calls with their answers. A long-running tool may never give
    one."""
    parts = (event.content.parts if event.content is not None else None) or ()
    waiting = event.long_running_tool_ids or ()
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if part.function_call is not None and part.function_call.id not in waiting:
            blocks.append({"type": "tool_use", "id": part.function_call.id})
        elif part.function_response is not None and part.function_response.id:
            blocks.append({"type": "tool_result", "tool_use_id": part.function_response.id})
        else:
            blocks.append({"type": "text", "text": part.text or ""})
    return {
        "id": event.id,
        "timestamp": event.timestamp,
        "role": event.author,
        "content": blocks,
        "invalid_tool_calls": [{"id": one} for one in waiting],
    }


def existing_sqlite(endpoint: Endpoint) -> AdkSessions:
    return AdkSessions(sqlite(endpoint))


def existing_database(endpoint: Endpoint) -> AdkSessions:
    return AdkSessions(database(endpoint))


def existing_redis(endpoint: Endpoint) -> AdkSessions:
    return AdkSessions(redis(endpoint))


redis.retention_s = 604_800.0  # type: ignore[attr-defined]
"""Its own default."""
