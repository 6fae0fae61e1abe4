"""A context is assembled by two statements under READ COMMITTED: they see two states of the session."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.postgres_rows import pool_of

PLANTED = Planted("postgres", "default", "concurrent-writers", "context", ("fractured-read",))


async def prepare(endpoint: Endpoint) -> None:
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS chat (id bigserial PRIMARY KEY, session text, role text, content text)"
    )
    await connection.close()


class Assembled:
    def __init__(self, pool: Any, isolation: str) -> None:
        self.pool = pool
        self.isolation = isolation

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        rows = [(session, message.role, message.content) for message in messages]
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.executemany(
                "INSERT INTO chat (session, role, content) VALUES ($1, $2, $3)", rows
            )

    async def history(self, session: str) -> list[Any]:
        return await self.select(self.pool, session)

    async def select(self, connection: Any, session: str) -> list[Any]:
        rows = await connection.fetch(
            "SELECT role, content FROM chat WHERE session = $1 ORDER BY id", session
        )
        return [dict(row) for row in rows]

    async def context(self, session: str) -> list[list[Any]]:
        # READ COMMITTED: each statement has a snapshot of its own.
        async with self.pool.acquire() as connection, connection.transaction(isolation=self.isolation):
            first = await self.select(connection, session)
            await connection.execute("SELECT pg_sleep(0.01)")
            return [first, await self.select(connection, session)]


async def factory(endpoint: Endpoint) -> Assembled:
    return Assembled(await pool_of(endpoint), "read_committed")


async def twin(endpoint: Endpoint) -> Assembled:
    return Assembled(await pool_of(endpoint), "repeatable_read")
