"""pgvector as a vector index, in the rows' database or in another one.

Vectors and marker are written in one transaction, under the lock of the marker's row: any number of processes may apply
changes, and those already applied by another are left out. After a crash PostgreSQL itself recovers both table and
index.

The tables are in the first schema of the search path, and each has a comment with the number that the catalogue gave it
when we created it. Other people's tables of the same name, there or further down the path, are neither read nor
dropped.
"""

import asyncio
import struct
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg

from recollect.erasure import Unreached
from recollect.errors import CannotOpen, RecollectError
from recollect.recall.index import IndexBroken, IndexMarker, Near
from recollect.recall.rows import Change
from recollect.stores.postgres.errors import DRIVER_ERRORS
from recollect.stores.postgres.hosts import Connection
from recollect.stores.postgres.pool import PostgresPool

HNSW_DIMENSIONS_MAX = 2_000
"""The limit of pgvector's HNSW index. Longer vectors are compared one by one, which is exact but slower."""

BUILD_MEMORY = "256MB"
BUILD_TIMEOUT_S = 3600.0

EXTENSION_MISSING = (
    "PostgreSQL has no extension 'vector': install pgvector on its host (Debian: postgresql-NN-pgvector), then "
    "CREATE EXTENSION vector"
)

_TABLES = ("recall_index_vectors", "recall_index_marker")

_PRESENT = """
SELECT c.relname, c.oid, n.nspname, obj_description(c.oid, 'pg_class') FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = current_schema() AND c.relname = ANY($1)"""

_CREATE = """
CREATE TABLE recall_index_marker (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    rows text NOT NULL, space integer NOT NULL, dimension integer NOT NULL, through bigint NOT NULL
);
CREATE TABLE recall_index_vectors (
    sequence bigint PRIMARY KEY, owner bytea NOT NULL, embedding vector({dimension}) NOT NULL
);
CREATE INDEX recall_index_by_owner ON recall_index_vectors (owner);"""

EXACT_ROWS_MAX = 5_000
"""Up to this many, a user's vectors are looked up by owner and compared one by one. PostgreSQL would rather walk the
graph and skip everybody else's: that takes longer the smaller the user's share is, and the graph may miss some."""

_EXACT = """
SELECT sequence, 1 - (embedding <=> $2), count(*) OVER ()
  FROM (SELECT sequence, embedding FROM recall_index_vectors WHERE owner = $1 LIMIT $4) AS own
 ORDER BY embedding <=> $2 LIMIT $3"""

_QUERY = """
SELECT sequence, 1 - (embedding <=> $2) FROM recall_index_vectors
 WHERE owner = $1 ORDER BY embedding <=> $2 LIMIT $3"""


Value = TypeVar("Value")


class PgVectorIndex:
    name = "pgvector"

    def __init__(self, url: str, timeout_s: float = 10.0, pool_size: int = 4) -> None:
        self._pool = PostgresPool(url, pool_size, _prepare)
        self._timeout_s = timeout_s
        self._many: set[bytes] = set()
        """Users with too many vectors to compare one by one."""

    async def open(self) -> IndexMarker | None:
        async def work(connection: Connection) -> IndexMarker | None:
            if len(await _own_tables(connection)) < len(_TABLES):
                return None
            row = await connection.fetchrow("SELECT rows, space, dimension, through FROM recall_index_marker")
            return None if row is None else IndexMarker(*row)

        return await self._with(work)

    async def reset(self, marker: IndexMarker) -> None:
        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended('recollect index ' || current_schema(), 0))"
                )
                for table in await _own_tables(connection):
                    await connection.execute(f"DROP TABLE {table}")
                await connection.execute(_CREATE.format(dimension=marker.dimension))
                await _claim(connection)
                if marker.dimension <= HNSW_DIMENSIONS_MAX:
                    # It fits into a page. Stored out of line, as values above 2 kB are, it would cost each comparison a
                    # fetch.
                    await connection.execute(
                        "ALTER TABLE recall_index_vectors ALTER embedding SET STORAGE PLAIN"
                    )
                await connection.execute(
                    "INSERT INTO recall_index_marker (rows, space, dimension, through) VALUES ($1, $2, $3, $4)",
                    marker.rows,
                    marker.space,
                    marker.dimension,
                    marker.through,
                )

        await self._with(work)

    async def apply(self, changes: Sequence[Change], marker: IndexMarker) -> None:
        async def work(connection: Connection) -> None:
            async with connection.transaction():
                known = await connection.fetchrow(
                    "SELECT rows, space, through FROM recall_index_marker FOR UPDATE"
                )
                if known is None or (known[0], known[1]) != (marker.rows, marker.space):
                    raise IndexBroken("pgvector: the index was replaced by another process's")
                news = [change for change in changes if change.at > known[2]]
                await _write(connection, news)
                await connection.execute(
                    "UPDATE recall_index_marker SET through = greatest(through, $1)", marker.through
                )

        await self._with(work)

    async def complete(self) -> None:
        """Building the graph at once is many times faster than growing it row by row."""

        async def work(connection: Connection) -> None:
            dimension = await connection.fetchval("SELECT dimension FROM recall_index_marker")
            if dimension is None or dimension > HNSW_DIMENSIONS_MAX:
                return
            async with connection.transaction():
                await connection.execute(f"SET LOCAL maintenance_work_mem = '{BUILD_MEMORY}'")
                await connection.execute(
                    "CREATE INDEX IF NOT EXISTS recall_index_hnsw ON recall_index_vectors "
                    "USING hnsw (embedding vector_cosine_ops)"
                )
            await connection.execute("ANALYZE recall_index_vectors")

        await self._with(work, BUILD_TIMEOUT_S)

    def erased(self) -> tuple[list[str], list[Unreached]]:
        """Its tables were dropped and recreated."""
        why = "the write-ahead log keeps what was written until its segments are recycled"
        return ["recall_index_vectors"], [Unreached("pg_wal", why)]

    async def query(self, user: bytes, vector: bytes, k: int) -> list[Near]:
        async def work(connection: Connection) -> list[Near]:
            if user not in self._many:
                found = await connection.fetch(_EXACT, user, vector, k, EXACT_ROWS_MAX + 1)
                if not found or found[0][2] <= EXACT_ROWS_MAX:
                    return [Near(row[0], row[1]) for row in found]
                self._many.add(user)
            return [Near(*row) for row in await connection.fetch(_QUERY, user, vector, k)]

        return await self._with(work)

    async def vectors(self, sequences: Sequence[int]) -> dict[int, bytes]:
        async def work(connection: Connection) -> dict[int, bytes]:
            statement = "SELECT sequence, embedding FROM recall_index_vectors WHERE sequence = ANY($1)"
            return {row[0]: row[1] for row in await connection.fetch(statement, sequences)}

        return await self._with(work)

    async def count(self) -> int:
        async def work(connection: Connection) -> int:
            return int(await connection.fetchval("SELECT count(*) FROM recall_index_vectors"))

        return await self._with(work)

    async def close(self) -> None:
        await self._pool.close()

    async def _with(
        self, work: Callable[[Connection], Awaitable[Value]], timeout_s: float | None = None
    ) -> Value:
        try:
            connection = self._pool.take() or await self._pool.acquire(time.monotonic() + self._timeout_s)
        except RecollectError as error:
            if isinstance(error, CannotOpen) and "extension" in str(error):
                raise
            raise IndexBroken(f"pgvector: {error}") from error
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                answer = await work(connection)
        except BaseException as error:
            self._pool.discard(connection)
            if isinstance(error, DRIVER_ERRORS):
                raise IndexBroken(f"pgvector: {type(error).__name__}: {error}") from error
            raise
        self._pool.release(connection)
        return answer


async def _prepare(connection: Connection) -> None:
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except asyncpg.PostgresError as error:
        raise CannotOpen(f"{EXTENSION_MISSING} ({error})") from error
    schema = await connection.fetchval(
        "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
    )
    # The extension may be in another schema, where its type and operators are not visible to us.
    await connection.execute(
        "SELECT set_config('search_path', current_setting('search_path') || ', ' || quote_ident($1), false) "
        "WHERE to_regtype('vector') IS NULL",
        schema,
    )
    await connection.set_type_codec(
        "vector", schema=schema, encoder=_to_wire, decoder=_from_wire, format="binary"
    )
    # Filtering by user drops some of the nearest: keep looking until there are enough.
    await connection.execute("SET hnsw.iterative_scan = strict_order")


async def _own_tables(connection: Connection) -> list[str]:
    """The tables that we created; refuses somebody else's of the same name."""
    found = await connection.fetch(_PRESENT, _TABLES)
    for name, number, schema, comment in found:
        if comment != _claim_of(number):
            raise IndexBroken(
                f"pgvector: {schema}.{name} was not made by this release of recollect, and is left alone: rename or "
                "drop it, or give the index a schema of its own (?search_path=NAME)"
            )
    return [row[0] for row in found]


async def _claim(connection: Connection) -> None:
    for name, number, *_ in await connection.fetch(_PRESENT, _TABLES):
        await connection.execute(f"COMMENT ON TABLE {name} IS '{_claim_of(number)}'")


def _claim_of(number: int) -> str:
    return f"recollect: a vector index, made as table {number}"


async def _write(connection: Connection, changes: Sequence[Change]) -> None:
    gone = [change.sequence for change in changes if change.vector is None]
    came = [change for change in changes if change.vector is not None]
    if gone:
        await connection.execute("DELETE FROM recall_index_vectors WHERE sequence = ANY($1)", gone)
    if came:
        await connection.execute(
            "INSERT INTO recall_index_vectors (sequence, owner, embedding) "
            "SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::vector[]) "
            "ON CONFLICT (sequence) DO NOTHING",
            [change.sequence for change in came],
            [change.user for change in came],
            [change.vector for change in came],
        )


def _to_wire(vector: bytes) -> bytes:
    """pgvector's binary form: the number of dimensions, two unused bytes, then the floats, big-endian."""
    floats = array("f", vector)
    count = len(floats)
    if sys.byteorder == "little":
        floats.byteswap()
    return struct.pack(">HH", count, 0) + floats.tobytes()


def _from_wire(data: bytes) -> bytes:
    floats = array("f", data[4:])
    if sys.byteorder == "little":
        floats.byteswap()
    return floats.tobytes()
