"""A context is assembled by two statements under READ COMMITTED: they see two states of the session."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("postgres", "default", "concurrent-writers", "context", ("fractured-read",))


async def prepare(endpoint: Endpoint) -> None:
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS chat (id bigserial PRIMARY KEY, session text, role text, content text)"
    )
    await connection.close()


class Assembled:
    def __init__(self, connection: Any, isolation: str) -> None:
        self.connection = connection
        self.isolation = isolation

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        rows = [(session, message.role, message.content) for message in messages]
        async with self.connection.transaction():
            await self.connection.executemany(
                "INSERT INTO chat (session, role, content) VALUES ($1, $2, $3)", rows
            )

    async def history(self, session: str) -> list[Any]:
        rows = await self.connection.fetch(
            "SELECT role, content FROM chat WHERE session = $1 ORDER BY id", session
        )
        return [dict(row) for row in rows]

    async def context(self, session: str) -> list[list[Any]]:
        # READ COMMITTED: each statement has a snapshot of its own.
        async with self.connection.transaction(isolation=self.isolation):
            first = await self.history(session)
            await self.connection.execute("SELECT pg_sleep(0.01)")
            return [first, await self.history(session)]


async def factory(endpoint: Endpoint) -> Assembled:
    return Assembled(await asyncpg.connect(endpoint.url), "read_committed")


async def twin(endpoint: Endpoint) -> Assembled:
    return Assembled(await asyncpg.connect(endpoint.url), "repeatable_read")
