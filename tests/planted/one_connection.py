"""The only connection is opened once: when the engine comes back, nothing can be stored any more."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.postgres_rows import PostgresRows, pool_of, prepare

__all__ = ["prepare"]

PLANTED = Planted("postgres", "default", "kill-engine", "append", ("does-not-recover",))


class OneConnection(PostgresRows):
    """Its tasks take turns, as a connection does one thing at a time."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.turn = asyncio.Lock()

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        async with self.turn, self.pool.transaction():  # the connection itself
            await self.insert(self.pool, session, messages)

    async def history(self, session: str) -> list[Any]:
        async with self.turn:
            return await super().history(session)


async def factory(endpoint: Endpoint) -> OneConnection:
    return OneConnection(await asyncpg.connect(endpoint.url))


async def twin(endpoint: Endpoint) -> PostgresRows:
    return PostgresRows(await pool_of(endpoint))
