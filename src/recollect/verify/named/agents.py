"""Sessions of the OpenAI Agents SDK, made as its documentation makes them: one object for each conversation."""

from typing import Any

from agents import SQLiteSession

from recollect.verify.engines.endpoint import Endpoint


def sqlite(endpoint: Endpoint, session: str) -> Any:
    return SQLiteSession(session, str(endpoint.path))


def async_sqlite(endpoint: Endpoint, session: str) -> Any:
    from agents.extensions.memory import AsyncSQLiteSession  # each needs a driver that the others do not

    return AsyncSQLiteSession(session, str(endpoint.path))


def advanced(endpoint: Endpoint, session: str) -> Any:
    from agents.extensions.memory import AdvancedSQLiteSession

    return AdvancedSQLiteSession(session_id=session, db_path=str(endpoint.path), create_tables=True)


def redis(endpoint: Endpoint, session: str) -> Any:
    from agents.extensions.memory import RedisSession

    return RedisSession.from_url(session, url=endpoint.url)


def sqlalchemy(endpoint: Endpoint, session: str) -> Any:
    from agents.extensions.memory import SQLAlchemySession

    address = endpoint.url.replace("postgresql://", "postgresql+asyncpg://", 1)
    return SQLAlchemySession.from_url(session, url=address, create_tables=True)
