"""The drivers themselves: the record's bytes in, the records' bytes out, and nothing more."""

import json
import sqlite3
from collections.abc import Sequence, Sized
from functools import partial
from typing import Any, cast

import asyncpg
import redis.asyncio

from contenders.contender import (
    CLIENTS_MANY,
    CLIENTS_MAX,
    FILL_CHUNK,
    READ_LAST,
    RECORD,
    AsyncContender,
    AsyncRead,
    AsyncStep,
    SyncContender,
    SyncRead,
    SyncStep,
    sync_rate,
)

RAW = "raw driver"
RAW_DECODING = "raw driver, json.loads of each record"
"""What a reader of messages does at least. The raw driver itself returns bytes."""


class RawRedis(AsyncContender):
    name = RAW
    note = "redis-py asyncio: RPUSH; LRANGE -100 -1"
    append_clients = frozenset({1, CLIENTS_MAX, CLIENTS_MANY})
    _clients: list[redis.asyncio.Redis]

    async def open(self) -> None:
        self._clients = [
            redis.asyncio.Redis.from_url(self.place.url, single_connection_client=True)
            for _ in range(max(self.append_clients, default=1))
        ]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def fill(self, session: str, count: int) -> None:
        for _ in range(0, count, FILL_CHUNK):
            await self._clients[0].rpush(f"raw:{session}", *[RECORD] * FILL_CHUNK)

    async def appender(self, client: int, session: str) -> AsyncStep:
        return partial(self._clients[client].rpush, f"raw:{session}", RECORD)

    async def reader(self, session: str) -> AsyncRead:
        return partial(self._clients[0].lrange, f"raw:{session}", -READ_LAST, -1)


class RawRedisDecoding(RawRedis):
    name = RAW_DECODING
    note = "the same, only to read"
    append_clients = frozenset()

    async def reader(self, session: str) -> AsyncRead:
        fetch = await super().reader(session)

        async def read() -> Sized:
            return [json.loads(record) for record in cast(list[bytes], await fetch())]

        return read


class RawPostgres(AsyncContender):
    name = RAW
    note = "asyncpg: one INSERT, prepared; SELECT … ORDER BY sequence DESC LIMIT 100"
    append_clients = frozenset({1, CLIENTS_MAX, CLIENTS_MANY})
    _connections: list[Any]

    async def open(self) -> None:
        self._connections = [
            await asyncpg.connect(self.place.url) for _ in range(max(self.append_clients, default=1))
        ]
        await self._connections[0].execute(
            "CREATE TABLE IF NOT EXISTS raw (session text, sequence bigserial, record bytea NOT NULL,"
            " PRIMARY KEY (session, sequence))"
        )

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def fill(self, session: str, count: int) -> None:
        await self._connections[0].copy_records_to_table(
            "raw", columns=["session", "record"], records=[(session, RECORD)] * count
        )

    async def appender(self, client: int, session: str) -> AsyncStep:
        insert = "INSERT INTO raw (session, record) VALUES ($1, $2)"
        return partial(self._connections[client].execute, insert, session, RECORD)

    async def reader(self, session: str) -> AsyncRead:
        select = f"SELECT record FROM raw WHERE session = $1 ORDER BY sequence DESC LIMIT {READ_LAST}"
        return partial(self._connections[0].fetch, select, session)


class RawPostgresDecoding(RawPostgres):
    name = RAW_DECODING
    note = "the same, only to read"
    append_clients = frozenset()

    async def reader(self, session: str) -> AsyncRead:
        fetch = await super().reader(session)

        async def read() -> Sized:
            return [json.loads(record) for (record,) in cast(list[tuple[bytes]], await fetch())]

        return read


class RawSqlite(SyncContender):
    name = RAW
    note = (
        "sqlite3, WAL, synchronous FULL, autocommit INSERT; 8 clients are 8 threads, each with its connection"
    )
    _connections: list[sqlite3.Connection]

    async def open(self) -> None:
        self._connections = [self._connect() for _ in range(max(self.append_clients, default=1))]
        self._connections[0].executescript(
            "CREATE TABLE IF NOT EXISTS raw"
            " (sequence INTEGER PRIMARY KEY, session TEXT NOT NULL, record BLOB NOT NULL);"
            "CREATE INDEX IF NOT EXISTS raw_by_session ON raw (session, sequence)"
        )

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.place.folder / f"{self.name}.db", timeout=30, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def fill(self, session: str, count: int) -> None:
        connection = self._connections[0]
        connection.execute("BEGIN")
        connection.executemany(self._INSERT, [(session, RECORD)] * count)
        connection.execute("COMMIT")

    _INSERT = "INSERT INTO raw (session, record) VALUES (?, ?)"

    def appender(self, client: int, session: str) -> SyncStep:
        return partial(self._connections[client].execute, self._INSERT, (session, RECORD))

    def reader(self, session: str) -> SyncRead:
        select = f"SELECT record FROM raw WHERE session = ? ORDER BY sequence DESC LIMIT {READ_LAST}"
        execute = self._connections[0].execute
        return lambda: execute(select, (session,)).fetchall()


class RawSqliteDecoding(RawSqlite):
    name = RAW_DECODING
    note = "the same, only to read"
    append_clients = frozenset()

    def reader(self, session: str) -> SyncRead:
        fetch = super().reader(session)
        return lambda: [json.loads(record) for (record,) in cast(list[tuple[bytes]], fetch())]


class RawSqliteInTurn(RawSqlite):
    """The reference beside the eight threads: one connection, one thread, so that no lock is ever waited for."""

    name = "raw, one connection in turn"
    note = "what 8 clients get if the application queues them itself"
    append_clients = frozenset({CLIENTS_MAX})
    reads = False

    async def append_rate(self, sessions: Sequence[str], duration_s: float) -> float:
        steps = [self.appender(0, session) for session in sessions]

        def one_of_each() -> None:
            for step in steps:
                step()

        return len(steps) * sync_rate(one_of_each, duration_s)
