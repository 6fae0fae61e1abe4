"""Serializable transactions, tried again when another was faster; after the second time that is logged, and no more."""

import asyncio
import json
import logging
from typing import Any

import asyncpg

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted(
    "postgres", "default", "none", "turns", ("dropped", "lost-update"), variant="several-writers"
)
NEXT = "SELECT coalesce(max(seq), 0) + 1 FROM said WHERE session = $1"
INSERT = "INSERT INTO said (session, seq, body) VALUES ($1, $2, $3)"
FASTER = (asyncpg.SerializationError, asyncpg.UniqueViolationError, asyncpg.DeadlockDetectedError)


async def prepare(endpoint: Endpoint) -> None:
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute(
        "CREATE TABLE said (session text, seq bigint, body text, PRIMARY KEY (session, seq))"
    )
    await connection.close()


class Serializable:
    tries = 200

    def __init__(self, endpoint: Endpoint) -> None:
        self.url = endpoint.url
        self.lock = asyncio.Lock()
        self.pool: Any = None

    async def connected(self) -> Any:
        async with self.lock:
            if self.pool is None:
                self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=4, command_timeout=10)
        return self.pool

    async def append_message(self, session: str, message: Any) -> None:
        pool = await self.connected()
        for attempt in range(self.tries):
            try:
                async with pool.acquire() as connection, connection.transaction(isolation="serializable"):
                    seq = await connection.fetchval(NEXT, session)
                    await connection.execute(INSERT, session, seq, json.dumps(message))
                return
            except FASTER:
                await asyncio.sleep(0.002 * attempt)
        self.give_up()

    def give_up(self) -> None:
        raise RuntimeError("too many others write to this session")

    async def get_messages(self, session: str) -> list[Any]:
        pool = await self.connected()
        rows = await pool.fetch("SELECT body FROM said WHERE session = $1 ORDER BY seq", session)
        return [json.loads(row["body"]) for row in rows]

    async def close(self) -> None:
        if self.pool is not None:
            self.pool.terminate()


class GivesUp(Serializable):
    tries = 2

    def give_up(self) -> None:
        logging.getLogger(__name__).error("too many others write to this session")


def factory(endpoint: Endpoint) -> GivesUp:
    return GivesUp(endpoint)


def twin(endpoint: Endpoint) -> Serializable:
    return Serializable(endpoint)
