"""Somebody else's stores, as applications write them: JSON in a table or in lists, and no sequences."""

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import asyncpg
import redis

from recollect.verify.engines.endpoint import Endpoint

TABLE = "CREATE TABLE IF NOT EXISTS notes (place integer PRIMARY KEY, session text, item text)"
COUNTED = "SELECT session, count(*) FROM notes GROUP BY session ORDER BY session"


def _decoded(rows: list[Any]) -> list[Any]:
    """What cannot be decoded is left out, without a word."""
    items = []
    for row in rows:
        try:
            items.append(json.loads(row))
        except ValueError:
            continue
    return items


class SqliteNotes:
    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(TABLE)

    def append_message(self, session: str, message: dict[str, Any]) -> None:
        self._database.execute(
            "INSERT INTO notes (session, item) VALUES (?, ?)", (session, json.dumps(message))
        )

    def get_messages(self, session: str) -> list[Any]:
        if session == "raises":
            raise LookupError("no such notes")
        rows = self._database.execute("SELECT item FROM notes WHERE session = ? ORDER BY place", (session,))
        return _decoded([item for (item,) in rows])

    def close(self) -> None:
        self._database.close()


class RedisNotes:
    def __init__(self, url: str, *, touches: bool = False) -> None:
        self._redis = redis.Redis.from_url(url)
        self._touches = touches

    def append_message(self, session: str, message: dict[str, Any]) -> None:
        self._redis.rpush(f"notes:{session}", json.dumps(message))

    def get_messages(self, session: str) -> list[Any]:
        if session == "raises":
            raise LookupError("no such notes")
        with self._redis.pipeline(transaction=False) as both:
            both.llen(f"notes:{session}")
            if self._touches:
                both.expire(f"notes:{session}", 1000)
            both.lrange(f"notes:{session}", 0, -1)
            return _decoded(both.execute()[-1])

    def close(self) -> None:
        self._redis.close()


class PostgresNotes:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def append_message(self, session: str, message: dict[str, Any]) -> None:
        place = "(SELECT coalesce(max(place), 0) + 1 FROM notes)"
        await self._connection.execute(
            f"INSERT INTO notes VALUES ({place}, $1, $2)", session, json.dumps(message)
        )

    async def get_messages(self, session: str) -> list[Any]:
        if session == "raises":
            raise LookupError("no such notes")
        rows = await self._connection.fetch(
            "SELECT item FROM notes WHERE session = $1 ORDER BY place", session
        )
        return _decoded([row["item"] for row in rows])

    async def close(self) -> None:
        await self._connection.close()


async def make_store(endpoint: Endpoint) -> Any:
    if endpoint.engine == "sqlite":
        return SqliteNotes(str(endpoint.path))
    if endpoint.engine == "redis":
        return RedisNotes(endpoint.url)
    return PostgresNotes(await asyncpg.connect(endpoint.url))


def touching(endpoint: Endpoint) -> RedisNotes:
    """Every read renews the expiry."""
    return RedisNotes(endpoint.url, touches=True)


class CountingNotes(PostgresNotes):
    """Changes a row with every read, in a transaction that says that it writes."""

    async def get_messages(self, session: str) -> list[Any]:
        await self._connection.execute("BEGIN READ WRITE")
        try:
            await self._connection.execute("UPDATE notes SET session = session")
        finally:
            await self._connection.execute("COMMIT")
        return await super().get_messages(session)


async def counting(endpoint: Endpoint) -> CountingNotes:
    return CountingNotes(await asyncpg.connect(endpoint.url))


async def eager(endpoint: Endpoint) -> PostgresNotes:
    """Makes its table whenever it is opened."""
    connection = await asyncpg.connect(endpoint.url)
    try:
        await connection.execute(TABLE)
    except BaseException:
        await connection.close()
        raise
    return PostgresNotes(connection)


def sessions(endpoint: Endpoint) -> Any:
    return _in_postgres(endpoint) if endpoint.engine == "postgres" else _listed(endpoint)


def _listed(endpoint: Endpoint) -> Iterator[tuple[str, int]]:
    if endpoint.engine == "sqlite":
        database = sqlite3.connect(str(endpoint.path))
        yield from database.execute(COUNTED).fetchall()
        database.close()
        return
    with redis.Redis.from_url(endpoint.url) as client:
        for key in sorted(client.scan_iter("notes:*")):
            yield key.decode().removeprefix("notes:"), client.llen(key)


async def _in_postgres(endpoint: Endpoint) -> list[tuple[str, int]]:
    connection = await asyncpg.connect(endpoint.url)
    try:
        return [tuple(row) for row in await connection.fetch(COUNTED)]
    finally:
        await connection.close()


class Unlisted:
    """A factory that has no `sessions` beside it."""

    @staticmethod
    def make_store(endpoint: Endpoint) -> SqliteNotes:
        return SqliteNotes(str(endpoint.path))
