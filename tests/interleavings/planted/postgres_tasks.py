"""Stores on PostgreSQL (asyncpg): wrong when several tasks, or several processes, use them at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import asyncpg

from recollect.message import Message
from recollect.verify.engines import Endpoint

Messages = Sequence[Message]

TABLES = """CREATE TABLE IF NOT EXISTS chat (session text, place int, body text, PRIMARY KEY (session, place));
CREATE TABLE IF NOT EXISTS counters (session text PRIMARY KEY, last int NOT NULL)"""
PLACE = "SELECT coalesce(max(place), 0) + 1 FROM chat WHERE session = $1"
UPSERT = (
    "INSERT INTO chat VALUES ($1, $2, $3) ON CONFLICT (session, place) DO UPDATE SET body = excluded.body"
)
READ = "SELECT body FROM chat WHERE session = $1 ORDER BY place"
COUNT = """INSERT INTO counters VALUES ($1, $2)
ON CONFLICT (session) DO UPDATE SET last = counters.last + $2 RETURNING last"""


def plain(message: Message) -> str:
    return json.dumps({"role": message.role, "content": message.text})


async def prepare(endpoint: Endpoint) -> None:
    connection = await asyncpg.connect(endpoint.url, ssl=False)
    await connection.execute(TABLES)
    await connection.close()


class CounterIsTheLock:
    """Nothing wrong: the counter's row is the lock, held until the commit."""

    pool: Any

    async def open(self, endpoint: Endpoint) -> CounterIsTheLock:
        self.pool = await asyncpg.create_pool(endpoint.url, ssl=False, min_size=2, max_size=4)
        return self

    async def append(self, session: str, messages: Messages) -> None:
        async with self.pool.acquire() as connection, connection.transaction():
            last = await connection.fetchval(COUNT, session, len(messages))
            for number, message in enumerate(messages, last - len(messages) + 1):
                await connection.execute(
                    "INSERT INTO chat VALUES ($1, $2, $3)", session, number, plain(message)
                )

    async def history(self, session: str) -> list[dict[str, str]]:
        async with self.pool.acquire() as connection:
            return [json.loads(row[0]) for row in await connection.fetch(READ, session)]

    async def close(self) -> None:
        await asyncio.wait_for(self.pool.close(), 1)


class MaxThenInsert(CounterIsTheLock):
    """In a transaction, and yet: what is the highest place, then the next one. READ COMMITTED does not mind."""

    async def append(self, session: str, messages: Messages) -> None:
        async with self.pool.acquire() as connection, connection.transaction():
            for message in messages:
                place = await connection.fetchval(PLACE, session)
                await connection.execute(UPSERT, session, place, plain(message))


class AdvisoryLock(CounterIsTheLock):
    """Nothing wrong: the same under a lock that ends with the transaction."""

    async def append(self, session: str, messages: Messages) -> None:
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", session)
            for message in messages:
                place = await connection.fetchval(PLACE, session)
                await connection.execute(UPSERT, session, place, plain(message))


class LockBeforeCommit(CounterIsTheLock):
    """A lock around the statements, given back before the commit."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def append(self, session: str, messages: Messages) -> None:
        async with self.pool.acquire() as connection, connection.transaction(), self.lock:
            for message in messages:
                place = await connection.fetchval(PLACE, session)
                await connection.execute(UPSERT, session, place, plain(message))


class AutocommitTurn(CounterIsTheLock):
    """A turn without a transaction: each message is there as soon as it is written."""

    async def append(self, session: str, messages: Messages) -> None:
        async with self.pool.acquire() as connection:
            last = await connection.fetchval(COUNT, session, len(messages))
            for number, message in enumerate(messages, last - len(messages) + 1):
                await connection.execute(
                    "INSERT INTO chat VALUES ($1, $2, $3)", session, number, plain(message)
                )


class SharedConnection(CounterIsTheLock):
    """One connection for all tasks."""

    connection: Any

    async def open(self, endpoint: Endpoint) -> SharedConnection:
        self.connection = await asyncpg.connect(endpoint.url, ssl=False)
        return self

    async def append(self, session: str, messages: Messages) -> None:
        insert = "INSERT INTO chat SELECT $1, coalesce(max(place), 0) + 1, $2 FROM chat WHERE session = $1"
        for message in messages:
            await self.connection.execute(insert, session, plain(message))

    async def history(self, session: str) -> list[dict[str, str]]:
        return [json.loads(row[0]) for row in await self.connection.fetch(READ, session)]

    async def close(self) -> None:
        await self.connection.close(timeout=1)


class DeadlockProne(CounterIsTheLock):
    """Two locks, taken in an order that depends on the caller."""

    calls = 0

    async def append(self, session: str, messages: Messages) -> None:
        self.calls += 1
        keys = [1, 2] if self.calls % 2 else [2, 1]
        async with self.pool.acquire() as connection, connection.transaction():
            for key in keys:
                await connection.execute(f"SELECT pg_advisory_xact_lock({key})")
            place = await connection.fetchval(PLACE, session)
            for number, message in enumerate(messages):
                await connection.execute(UPSERT, session, place + number, plain(message))


def _factory(kind: type[CounterIsTheLock]) -> Callable[[Endpoint], Coroutine[Any, Any, Any]]:
    def factory(endpoint: Endpoint) -> Coroutine[Any, Any, Any]:
        return kind().open(endpoint)

    return factory


counter_is_the_lock = _factory(CounterIsTheLock)
max_then_insert = _factory(MaxThenInsert)
advisory_lock = _factory(AdvisoryLock)
lock_before_commit = _factory(LockBeforeCommit)
autocommit_turn = _factory(AutocommitTurn)
shared_connection = _factory(SharedConnection)
deadlock_prone = _factory(DeadlockProne)
