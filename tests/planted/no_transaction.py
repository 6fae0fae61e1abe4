"""Each message of a turn commits by itself: the engine dies between two of them, and half a turn is left."""

from collections.abc import Sequence

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.postgres_rows import PostgresRows, pool_of, prepare

__all__ = ["prepare"]

PLANTED = Planted("postgres", "default", "kill-engine-at-line", "turns", ("torn-turn",), variant="every-line")


class OneByOne(PostgresRows):
    async def append(self, session: str, messages: Sequence[Message]) -> None:
        async with self.pool.acquire() as connection:
            await self.insert(connection, session, messages)


async def factory(endpoint: Endpoint) -> OneByOne:
    return OneByOne(await pool_of(endpoint))


async def twin(endpoint: Endpoint) -> PostgresRows:
    return PostgresRows(await pool_of(endpoint))
