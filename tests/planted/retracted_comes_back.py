"""What was taken back is remembered in an unlogged table, which PostgreSQL empties when it recovers from a crash."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from recollect import Conflict, Message, NotFound
from recollect.message import decode, encode
from recollect.store import Stored
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.postgres_rows import PostgresRows, pool_of
from tests.planted.postgres_rows import prepare as prepare_rows

PLANTED = Planted("postgres", "default", "kill-engine", "changes", ("resurrected",))


async def prepare(endpoint: Endpoint) -> None:
    await prepare_rows(endpoint)
    connection = await asyncpg.connect(endpoint.url)
    for kind, table in (("", "taken"), ("UNLOGGED", "taken_quickly")):
        await connection.execute(f"CREATE {kind} TABLE {table} (id bigint, session text, said bigint UNIQUE)")
    await connection.close()


class Retractable(PostgresRows):
    """One change of a session at a time, so that its position is the last id that one of them was given."""

    taken = "taken"

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        async with self.pool.acquire() as connection, connection.transaction():
            await self.alone(connection, session)
            await self.insert(connection, session, messages)

    async def insert(self, connection: Any, session: str, messages: Sequence[Message]) -> None:
        statement = "INSERT INTO said (session, content) VALUES ($1, $2)"
        for message in messages:
            await connection.execute(statement, session, encode(message).decode())

    async def retract(self, session: str, *sequences: int, expect: int | None = None) -> None:
        async with self.pool.acquire() as connection, connection.transaction():
            await self.alone(connection, session)
            last = await self.last(connection, session)
            if expect is not None and expect != last:
                raise Conflict(session, expect, last)
            for sequence in sequences:
                done = await connection.execute(
                    f"INSERT INTO {self.taken} SELECT nextval('said_id_seq'), $1, $2 ON CONFLICT DO NOTHING",
                    session,
                    sequence,
                )
                if done == "INSERT 0 0":
                    raise NotFound(f"{sequence} is gone")

    async def alone(self, connection: Any, session: str) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", session)

    async def last(self, connection: Any, session: str) -> int:
        select = (
            "SELECT max(id) FROM (SELECT id FROM said WHERE session = $1 UNION ALL "
            f"SELECT id FROM {self.taken} WHERE session = $1) AS every"
        )
        return int(await connection.fetchval(select, session) or 0)

    async def position(self, session: str) -> int:
        return await self.last(self.pool, session)

    async def history(self, session: str) -> list[Any]:
        select = (
            "SELECT id, content FROM said WHERE session = $1 "
            f"AND id NOT IN (SELECT said FROM {self.taken}) ORDER BY id"
        )
        rows = await self.pool.fetch(select, session)
        return [Stored(row["id"], decode(row["content"].encode())) for row in rows]


class TakenQuickly(Retractable):
    taken = "taken_quickly"


async def factory(endpoint: Endpoint) -> TakenQuickly:
    return TakenQuickly(await pool_of(endpoint))


async def twin(endpoint: Endpoint) -> Retractable:
    return Retractable(await pool_of(endpoint))
