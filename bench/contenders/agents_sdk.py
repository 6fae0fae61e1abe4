"""OpenAI Agents SDK sessions: one object a session, `add_items` and `get_items(limit=…)`."""

from abc import abstractmethod
from functools import partial
from typing import Any

import redis.asyncio
from agents import SQLiteSession
from agents.extensions.memory import RedisSession, SQLAlchemySession
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from contenders.contender import (
    CLIENTS_MAX,
    FILL_CHUNK,
    READ_LAST,
    TEXT,
    AsyncContender,
    AsyncRead,
    AsyncStep,
    sqlite_note,
)

ITEM: dict[str, Any] = {"role": "user", "content": TEXT}


class _AgentsSession(AsyncContender):
    @abstractmethod
    def session(self, session: str) -> Any: ...

    async def fill(self, session: str, count: int) -> None:
        one = self.session(session)
        for _ in range(0, count, FILL_CHUNK):
            await one.add_items([ITEM] * FILL_CHUNK)

    async def appender(self, client: int, session: str) -> AsyncStep:
        return partial(self.session(session).add_items, [ITEM])

    async def reader(self, session: str) -> AsyncRead:
        return partial(self.session(session).get_items, limit=READ_LAST)


class AgentsRedis(_AgentsSession):
    name = "OpenAI Agents RedisSession"
    _client: redis.asyncio.Redis

    async def open(self) -> None:
        self._client = redis.asyncio.Redis.from_url(self.place.url)

    async def close(self) -> None:
        await self._client.aclose()

    def session(self, session: str) -> Any:
        return RedisSession(session, redis_client=self._client)


class AgentsSqlite(_AgentsSession):
    name = "OpenAI Agents SQLiteSession"
    _opened: dict[str, Any]

    async def open(self) -> None:
        self._opened = {}
        self._path = self.place.folder / "agents.db"
        self.session("first")
        self.note = sqlite_note(self._path)

    async def close(self) -> None:
        for one in self._opened.values():
            one.close()

    def session(self, session: str) -> Any:
        if session not in self._opened:
            self._opened[session] = SQLiteSession(session, self._path)
        return self._opened[session]


class _AgentsSqlAlchemy(_AgentsSession):
    _engine: AsyncEngine
    _opened: dict[str, Any]

    @abstractmethod
    def address(self) -> str: ...

    async def open(self) -> None:
        self._opened = {}
        self._engine = create_async_engine(self.address(), pool_size=CLIENTS_MAX)
        await self.session("first").add_items([ITEM])

    async def close(self) -> None:
        await self._engine.dispose()

    def session(self, session: str) -> Any:
        if session not in self._opened:
            self._opened[session] = SQLAlchemySession(session, engine=self._engine, create_tables=True)
        return self._opened[session]


class AgentsSqlAlchemyPostgres(_AgentsSqlAlchemy):
    name = "OpenAI Agents SQLAlchemySession"

    def address(self) -> str:
        return self.place.url.replace("postgresql://", "postgresql+asyncpg://", 1)


class AgentsSqlAlchemySqlite(_AgentsSqlAlchemy):
    name = "OpenAI Agents SQLAlchemySession"

    async def open(self) -> None:
        await super().open()
        self.note = sqlite_note(self.place.folder / "agents-sqlalchemy.db")

    def address(self) -> str:
        return f"sqlite+aiosqlite:///{self.place.folder}/agents-sqlalchemy.db"
