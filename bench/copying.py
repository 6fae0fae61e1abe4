"""Many sessions like one that the store wrote, copied inside the engine: this fills a memory in minutes that appends
would fill in hours. One in so many has expired. What is measured afterwards are the store's own calls."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import redis.asyncio

from recollect.stores.sqlite.rows import seal

AT_ONCE = 2_000


async def copy_session(engine: str, url: str, numbers: range, expired_part: int) -> None:
    """Makes sessions ``s<number>`` like ``s<number before the first>``; those whose number is a multiple of
    `expired_part` have expired."""
    if engine == "sqlite":
        _copy_in_sqlite(Path(url.removeprefix("sqlite:///")), numbers, expired_part)
    elif engine == "redis":
        await _copy_in_redis(url, numbers, expired_part)
    else:
        await _copy_in_postgres(url, numbers, expired_part)


def _portions(numbers: range) -> Iterator[range]:
    for first in range(0, len(numbers), AT_ONCE):
        yield numbers[first : first + AT_ONCE]


def _copy_in_sqlite(path: Path, numbers: range, expired_part: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        source, created = connection.execute(
            "SELECT id, created FROM recollect_sessions WHERE key = ?", (b"s%d" % (numbers[0] - 1),)
        ).fetchone()
        (highest,) = connection.execute("SELECT max(id) FROM recollect_sessions").fetchone()
        past = time.time() - 1
        for portion in _portions(numbers):
            connection.execute("BEGIN")
            for number in portion:
                made = highest + 1 + number - numbers[0]
                expires = past if number % expired_part == 0 else None
                connection.execute(
                    "INSERT INTO recollect_sessions (id, key, expires_at, created) VALUES (?, ?, ?, ?)",
                    (made, b"s%d" % number, expires, created),
                )
                seal(connection, made)
                connection.execute(
                    "INSERT INTO recollect_messages SELECT (:made << 32) + (place & 4294967295), record, written "
                    "FROM recollect_messages WHERE place BETWEEN :source << 32 AND (:source << 32) + 4294967295",
                    {"made": made, "source": source},
                )
            connection.execute("COMMIT")


async def _copy_in_redis(url: str, numbers: range, expired_part: int) -> None:
    """An expired session has its counter only: Redis has freed the messages."""
    client = redis.asyncio.Redis.from_url(url)
    source, past = numbers[0] - 1, int(time.time() * 1000) - 1_000
    try:
        for portion in _portions(numbers):
            pipe = client.pipeline(transaction=False)
            for number in portion:
                pipe.copy(f"recollect:{{ss{source}}}:c", f"recollect:{{ss{number}}}:c")
                if number % expired_part == 0:
                    pipe.hset(f"recollect:{{ss{number}}}:c", "expires", str(past))
                else:
                    pipe.copy(f"recollect:{{ss{source}}}:m", f"recollect:{{ss{number}}}:m")
            await pipe.execute()
    finally:
        await client.aclose()


async def _copy_in_postgres(url: str, numbers: range, expired_part: int) -> None:
    sessions = """
        INSERT INTO recollect_sessions (name, last, floor, freed, turns, marked, created_at, updated_at, expires_at)
        SELECT convert_to('s' || n, 'UTF8'), last, floor, freed, turns, marked, created_at, updated_at,
               CASE WHEN n % $4 = 0 THEN now() - interval '1 s' END
          FROM recollect_sessions, generate_series($2::int, $3::int) n WHERE name = $1 ORDER BY n RETURNING id"""
    messages = """
        INSERT INTO recollect_messages (session_id, sequence, record)
        SELECT made, sequence, record FROM unnest($2::bigint[]) made, recollect_messages m
         WHERE m.session_id = (SELECT id FROM recollect_sessions WHERE name = $1) ORDER BY made, sequence"""
    connection = await asyncpg.connect(url)
    try:
        source = b"s%d" % (numbers[0] - 1)
        await connection.execute("SET synchronous_commit = off")
        for portion in _portions(numbers):
            rows = await connection.fetch(sessions, source, portion[0], portion[-1], expired_part)
            await connection.execute(messages, source, [made for (made,) in rows])
        await connection.execute("VACUUM (ANALYZE, FREEZE)")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
