"""Ordered by the engine's clock: `DEFAULT now()` looks safe, until the database server's clock is set."""

from typing import Any

import asyncpg

from recollect.verify.engines import Endpoint

DECLARES = {
    "engine": "postgres",
    "policy": "default",
    "fault": "clock-back",
    "variant": "engine",
    "anomaly": "reorder",
}


async def prepare(endpoint: Endpoint) -> None:
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute(
        "CREATE TABLE said (session text, at timestamptz DEFAULT clock_timestamp(), role text, content text)"
    )
    await connection.close()


class Store:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def append_message(self, session: str, message: Any) -> None:
        insert = "INSERT INTO said (session, role, content) VALUES ($1, $2, $3)"
        await self._connection.execute(insert, session, message["role"], message["content"])

    async def get_history(self, session: str) -> list[Any]:
        select = "SELECT role, content FROM said WHERE session = $1 ORDER BY at"
        return [dict(row) for row in await self._connection.fetch(select, session)]


async def make(endpoint: Endpoint) -> Store:
    return Store(await asyncpg.connect(endpoint.url))
