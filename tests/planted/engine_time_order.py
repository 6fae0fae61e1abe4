"""Ordered by the engine's clock: a `DEFAULT clock_timestamp()` looks safe, until the database server's clock is set."""

from typing import Any

import asyncpg

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.postgres_rows import pool_of

PLANTED = Planted("postgres", "default", "clock-back", "append", ("reorder",), variant="engine")


async def prepare(endpoint: Endpoint) -> None:
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute(
        "CREATE TABLE said (id bigserial PRIMARY KEY, session text, at timestamptz DEFAULT clock_timestamp(),"
        " role text, content text)"
    )
    await connection.close()


class Ordered:
    def __init__(self, pool: Any, column: str) -> None:
        self.pool = pool
        self.column = column

    async def append_message(self, session: str, message: Any) -> None:
        insert = "INSERT INTO said (session, role, content) VALUES ($1, $2, $3)"
        await self.pool.execute(insert, session, message["role"], message["content"])

    async def get_history(self, session: str) -> list[Any]:
        select = f"SELECT role, content FROM said WHERE session = $1 ORDER BY {self.column}"
        return [dict(row) for row in await self.pool.fetch(select, session)]


async def factory(endpoint: Endpoint) -> Ordered:
    return Ordered(await pool_of(endpoint), "at")


async def twin(endpoint: Endpoint) -> Ordered:
    return Ordered(await pool_of(endpoint), "id")
