"""Session services of Google's Agent Development Kit: a session is fetched, and an event is appended to it."""

from typing import Any

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


redis.retention_s = 604_800.0  # type: ignore[attr-defined]
"""Its own default."""
