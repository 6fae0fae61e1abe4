"""Every error of the driver is raised as "not written, try again", although the reply alone may have been lost."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from recollect import Message
from recollect.errors import NotWritten, OutcomeUnknown
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.postgres_rows import PostgresRows, pool_of, prepare

__all__ = ["prepare"]

PLANTED = Planted("postgres", "default", "lost-ack", "append", ("dirty-read",))


class Turns(PostgresRows):
    """A turn is stored once, however often it is sent."""

    def __init__(self, pool: Any, error: type[Exception]) -> None:
        super().__init__(pool)
        self.error = error

    async def append(self, session: str, messages: Sequence[Message], *, turn: str = "") -> None:
        insert = "INSERT INTO said (session, role, content, turn) VALUES ($1, $2, $3, $4) ON CONFLICT (turn) DO NOTHING"
        try:
            async with self.pool.acquire() as connection, connection.transaction():
                for place, message in enumerate(messages):
                    row = (session, message.role, message.content, f"{turn}/{place}")
                    await connection.execute(insert, *row)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise self.error(f"the message could not be stored: {error}") from error


async def factory(endpoint: Endpoint) -> Turns:
    return Turns(await pool_of(endpoint), NotWritten)


async def twin(endpoint: Endpoint) -> Turns:
    return Turns(await pool_of(endpoint), OutcomeUnknown)
