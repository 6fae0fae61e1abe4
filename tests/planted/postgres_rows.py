"""Rows in PostgreSQL through a pool: what planted stores are made from. No bug of its own."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint


async def prepare(endpoint: Endpoint) -> None:
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute(
        "CREATE TABLE said (id bigserial PRIMARY KEY, session text, role text, content text, turn text UNIQUE)"
    )
    await connection.close()


async def pool_of(endpoint: Endpoint) -> Any:
    return await asyncpg.create_pool(endpoint.url, min_size=1, max_size=1, timeout=5)


class PostgresRows:
    def __init__(self, pool: Any) -> None:
        self.pool = pool

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        async with self.pool.acquire() as connection, connection.transaction():
            await self.insert(connection, session, messages)

    async def insert(self, connection: Any, session: str, messages: Sequence[Message]) -> None:
        statement = "INSERT INTO said (session, role, content) VALUES ($1, $2, $3)"
        for message in messages:
            await connection.execute(statement, session, message.role, message.content)

    async def history(self, session: str) -> list[Any]:
        select = "SELECT role, content FROM said WHERE session = $1 ORDER BY id"
        return [dict(row) for row in await self.pool.fetch(select, session)]
