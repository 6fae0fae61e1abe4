"""Stores that take nothing from their endpoint but host and port, as one that existed before engines had passwords."""

from __future__ import annotations

import asyncpg
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from recollect.verify.engines import Endpoint

_TABLE = """
CREATE TABLE IF NOT EXISTS messages (number bigserial PRIMARY KEY, session text NOT NULL, content text NOT NULL)"""


class PostgresMemory:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        host, port = self._endpoint.host, self._endpoint.port
        return await asyncpg.connect(host=host, port=port, user="postgres", database="postgres", timeout=5)

    async def append_message(self, session: str, message: str) -> None:
        connection = await self._connect()
        try:
            await connection.execute(
                "INSERT INTO messages (session, content) VALUES ($1, $2)", session, message, timeout=5
            )
        finally:
            connection.terminate()

    async def get_messages(self, session: str) -> list[str]:
        connection = await self._connect()
        try:
            query = "SELECT content FROM messages WHERE session = $1 ORDER BY number"
            return [row[0] for row in await connection.fetch(query, session, timeout=5)]
        finally:
            connection.terminate()


async def prepare(endpoint: Endpoint) -> None:
    if endpoint.engine == "postgres":
        connection = await PostgresMemory(endpoint)._connect()
        await connection.execute(_TABLE)
        await connection.close()


def postgres(endpoint: Endpoint) -> PostgresMemory:
    return PostgresMemory(endpoint)


class RedisMemory:
    def __init__(self, endpoint: Endpoint) -> None:
        self._client = redis.asyncio.Redis(
            host=endpoint.host or "", port=endpoint.port or 0, socket_timeout=5, retry=Retry(NoBackoff(), 0)
        )

    async def append_message(self, session: str, message: str) -> None:
        await self._client.rpush(session, message)

    async def get_messages(self, session: str) -> list[str]:
        found = await self._client.lrange(session, 0, -1)
        return [raw.decode() if isinstance(raw, bytes) else raw for raw in found]

    async def close(self) -> None:
        await self._client.aclose()


def redis_list(endpoint: Endpoint) -> RedisMemory:
    return RedisMemory(endpoint)
