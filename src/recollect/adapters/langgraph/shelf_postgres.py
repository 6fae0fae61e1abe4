"""Checkpoints in PostgreSQL, in tables of their own beside those of the conversation store.

A checkpoint with its values is one statement, and so one transaction; reads that need several statements see one
snapshot. Connections are pooled as in the store (`PostgresPool`), and `durability` means the same.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from recollect.adapters.langgraph.shelf import (
    CheckpointListing,
    CheckpointRow,
    FoundCheckpoint,
    PendingRow,
    ThreadPlace,
    Unchanged,
)
from recollect.adapters.langgraph.shelf_layout import (
    KnownHomes,
    Laid,
    Layout,
    for_child,
    has_others,
    inline_values,
    laid_out,
    layout_of,
    moved,
)
from recollect.adapters.langgraph.shelf_sql import (
    ADDED,
    ANCESTORS,
    IDENTIFY,
    IDENTITY,
    IDS,
    NAMESPACES,
    OF_CHECKPOINTS,
    RAISE_MARK,
    SCHEMA,
    TABLES,
    copying,
    for_postgres,
    listing_checkpoints,
)
from recollect.errors import EngineUnavailable, StoreClosed, Unreadable
from recollect.near import NotHere
from recollect.owner import Owner
from recollect.store import Durability, Options
from recollect.stores.postgres.abandoned_waits import WAIT_FOR_STANDBYS, AbandonedWaits
from recollect.stores.postgres.durability import Reach, reach, read_settings
from recollect.stores.postgres.errors import DRIVER_ERRORS, read_error, write_error
from recollect.stores.postgres.hosts import Connection, connect
from recollect.stores.postgres.losses import replaced
from recollect.stores.postgres.near import NearPostgres
from recollect.stores.postgres.near_wire import WireAnswer
from recollect.stores.postgres.opening import check_not_shared, check_server
from recollect.stores.postgres.pool import PostgresPool

log = logging.getLogger("recollect")

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('recollect langgraph ' || current_schema(), 0))"

_SCHEMA = for_postgres(SCHEMA)
_ADD_COLUMNS = ";".join(
    for_postgres(f"ALTER TABLE langgraph_checkpoints ADD COLUMN IF NOT EXISTS {name} BLOB") for name in ADDED
)
_COMPRESS_FAST = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals))
       AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'langgraph_checkpoints'::regclass
                      AND attname = 'inline' AND attcompression = '') THEN
        ALTER TABLE langgraph_checkpoints ALTER COLUMN inline SET COMPRESSION lz4;
    END IF;
EXCEPTION WHEN OTHERS THEN NULL;
END $$"""
"""Once, where the server has it (PostgreSQL 14 and later) and the user may: its own way of compressing is slower."""
_IDS = for_postgres(IDS)
_NAMESPACES = for_postgres(NAMESPACES)
_ANCESTORS = for_postgres(ANCESTORS)

_PUT = """
INSERT INTO langgraph_checkpoints SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 {condition}
ON CONFLICT (thread, namespace, id) DO UPDATE SET parent = excluded.parent, run = excluded.run,
    refs = excluded.refs, checkpoint = excluded.checkpoint, metadata = excluded.metadata,
    homes = excluded.homes, inline = excluded.inline, checksum = excluded.checksum"""

_PUT_WITH_ROWS = f"""
WITH kept AS (
    INSERT INTO langgraph_values
    SELECT $1, $2, new.ref, new.value FROM unnest($12::bytea[], $13::bytea[]) AS new (ref, value)
    ON CONFLICT (thread, namespace, ref) DO UPDATE SET value = excluded.value
)
{_PUT}"""

_BASE_THERE = (
    "WHERE EXISTS (SELECT FROM langgraph_checkpoints WHERE thread = $1 AND namespace = $2 AND id = ${})"
)
_PUTS = {
    (with_rows, needs_base): (_PUT_WITH_ROWS if with_rows else _PUT).format(
        condition=_BASE_THERE.format(14 if with_rows else 12) if needs_base else ""
    )
    for with_rows in (False, True)
    for needs_base in (False, True)
}
"""Keyed by whether there are rows of values, and whether nothing is put if the base is gone."""

_NOTHING_PUT = "INSERT 0 0"

_LAYOUT = (
    "SELECT parent, refs, homes, inline, checksum FROM langgraph_checkpoints "
    "WHERE thread = $1 AND namespace = $2 AND id = $3"
)

_PUT_WRITES = """
INSERT INTO langgraph_writes
SELECT $1, $2, $3, new.* FROM unnest($4::bytea[], $5::int[], $6::bytea[], $7::bytea[], $8::bytea[]) AS new
ON CONFLICT (thread, namespace, id, task, place) DO UPDATE
   SET channel = excluded.channel, path = excluded.path, value = excluded.value
 WHERE langgraph_writes.place < 0"""

_VALUES = "SELECT ref, value FROM langgraph_values WHERE thread = $1 AND namespace = $2 AND ref = ANY($3)"

_WRITES = (
    "SELECT id, task, place, channel, path, value FROM langgraph_writes "
    "WHERE thread = $1 AND namespace = $2 AND id = ANY($3)"
)

_INLINE = "SELECT id, inline FROM langgraph_checkpoints WHERE thread = $1 AND namespace = $2 AND id = ANY($3)"

_UNREFERRED = """
DELETE FROM langgraph_values v WHERE thread = $1 AND namespace = $2 AND ref <> ALL (ARRAY(
    SELECT DISTINCT unnest(refs) FROM langgraph_checkpoints WHERE thread = $1 AND namespace = $2))"""

_REFERRING = """
SELECT refs, homes FROM langgraph_checkpoints WHERE thread = $1 AND namespace = $2 AND homes IS NOT NULL"""

_PUT_VALUES = """
INSERT INTO langgraph_values SELECT $1, $2, new.* FROM unnest($3::bytea[], $4::bytea[]) AS new
ON CONFLICT (thread, namespace, ref) DO NOTHING"""

_CHECKPOINT, _VALUE, _WRITE, _HOME = range(4)
_GET = f"""
WITH c AS MATERIALIZED (
    SELECT * FROM langgraph_checkpoints WHERE thread = $1 AND namespace = $2 {{which}}
)
SELECT {_CHECKPOINT}, id, parent, run, refs, checkpoint, metadata, NULL::integer, homes, inline, checksum FROM c
UNION ALL
SELECT {_VALUE}, v.ref, NULL, NULL, NULL, v.value, NULL, NULL, NULL, NULL, NULL
  FROM c, unnest(c.refs) AS wanted (ref), LATERAL (
    SELECT ref, value FROM langgraph_values
     WHERE thread = $1 AND namespace = $2 AND langgraph_values.ref = wanted.ref OFFSET 0) v
UNION ALL
SELECT {_WRITE}, w.task, w.channel, w.path, NULL, w.value, NULL, w.place, NULL, NULL, NULL
  FROM c, LATERAL (
    SELECT * FROM langgraph_writes WHERE thread = $1 AND namespace = $2 AND langgraph_writes.id = c.id OFFSET 0) w
UNION ALL
SELECT {_HOME}, h.id, NULL, NULL, NULL, h.inline, NULL, NULL, NULL, NULL, NULL
  FROM c, (SELECT DISTINCT unnest(homes) FROM c) AS wanted (id), LATERAL (
    SELECT id, inline FROM langgraph_checkpoints
     WHERE thread = $1 AND namespace = $2 AND langgraph_checkpoints.id = wanted.id OFFSET 0) h"""
"""A checkpoint, its values and its writes: one statement, so one moment and one round trip. `OFFSET 0` keeps the
planner from a join that would read all values of the thread."""
_GET_LATEST = _GET.format(which="ORDER BY id DESC LIMIT 1")
_GET_ONE = _GET.format(which="AND id = $3")


class PostgresShelf:
    """See `Shelf`."""

    def __init__(self, url: str, options: Options, reached: Reach, identity: str) -> None:
        self.identity = identity
        self._timeout_s = options.timeout_s
        self._reach = reached
        self.notice = reached.notice
        self._pool = PostgresPool(url, options.pool_size, self._prepare)
        self._near = NearPostgres.of(self._pool, url, options.pool_size, options.timeout_s)
        self._owner = Owner()
        self._closed = False
        self._homes = KnownHomes()
        self._abandoned_waits = AbandonedWaits()

    @classmethod
    async def open(cls, url: str, options: Options) -> "PostgresShelf":
        deadline = time.monotonic() + options.timeout_s
        connection = await connect(url, deadline)
        try:
            await check_not_shared(connection, url, deadline)
            async with connection.transaction():
                await connection.execute(_LOCK, timeout=options.timeout_s)
                await connection.execute(_SCHEMA, timeout=options.timeout_s)
                await connection.execute(_ADD_COLUMNS, timeout=options.timeout_s)
                await connection.execute(_COMPRESS_FAST, timeout=options.timeout_s)
                await connection.execute(for_postgres(IDENTIFY), str(uuid.uuid4()), timeout=options.timeout_s)
            identity = await connection.fetchval(IDENTITY, timeout=options.timeout_s)
            reached = reach(await read_settings(connection, options.timeout_s), options)
        except DRIVER_ERRORS as error:
            raise read_error(error) from error
        finally:
            await connection.close()
        if reached.notice:
            log.warning("PostgreSQL: %s", reached.notice)
        return cls(url, options, reached, identity)

    @property
    def durability(self) -> Durability:
        return self._reach.durability

    @property
    def is_quick(self) -> bool:
        return False

    async def mark(self) -> int:
        [(_, mark)] = await self._fetch(IDENTITY)
        return int(mark)

    async def raise_mark(self) -> None:
        await self._write(RAISE_MARK)

    async def put(self, row: CheckpointRow, values: Mapping[bytes, bytes], unchanged: Unchanged) -> None:
        base = None
        if has_others(row, values):
            base = self._homes.of(row) or await self._layout_of_base(row)
        laid = laid_out(row, values, unchanged, base)
        if not await self._put(row, laid):
            laid = laid_out(row, values, unchanged, None)
            await self._put(row, laid)
        self._homes.note(row.place, row.id, laid.layout)

    async def _put(self, row: CheckpointRow, laid: Laid) -> bool:
        """False if the base that it needs is gone."""
        statement, values = _putting(row, laid)
        return await self._write(statement, *values) != _NOTHING_PUT

    def put_here(self, row: CheckpointRow, values: Mapping[bytes, bytes], unchanged: Unchanged) -> bool:
        try:
            base = None
            if has_others(row, values):
                base = self._homes.of(row) or _for_child(row, self._here(_LAYOUT, *row.place, row.base).rows)
            laid = laid_out(row, values, unchanged, base)
            statement, given = _putting(row, laid)
            if self._change_here(statement, *given).done == _NOTHING_PUT:
                return False
        except (NotHere, EngineUnavailable, Unreadable):  # nothing was put
            return False
        self._homes.note(row.place, row.id, laid.layout)
        return True

    async def _layout_of_base(self, row: CheckpointRow) -> Layout | None:
        assert row.base is not None
        return _for_child(row, await self._fetch(_LAYOUT, *row.place, row.base))

    async def put_writes(self, place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]) -> None:
        await self._write(_PUT_WRITES, *_putting_writes(place, checkpoint, writes))

    def put_writes_here(self, place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]) -> bool:
        try:
            self._change_here(_PUT_WRITES, *_putting_writes(place, checkpoint, writes))
        except NotHere:
            return False
        return True

    async def get(self, place: ThreadPlace, checkpoint: bytes | None) -> FoundCheckpoint | None:
        statement, values = _getting(place, checkpoint)
        return self._seen(place, await self._fetch(statement, *values))

    def get_here(self, place: ThreadPlace, checkpoint: bytes | None) -> tuple[bool, FoundCheckpoint | None]:
        statement, values = _getting(place, checkpoint)
        try:
            rows = self._fetch_here(statement, *values)
        except NotHere:
            return False, None
        return True, self._seen(place, rows)

    def _seen(self, place: ThreadPlace, rows: Sequence[Any]) -> FoundCheckpoint | None:
        if not rows:
            return None
        [first] = [row for row in rows if row[0] == _CHECKPOINT]
        _, name, parent, run, refs, content, metadata, _, homes, inline, checksum = first
        layout = layout_of(refs, homes, inline).checked(name, parent, checksum)
        self._homes.note(place, name, layout)
        others = {row[1]: inline_values(row[5]) for row in rows if row[0] == _HOME}
        return FoundCheckpoint(
            CheckpointRow(place, name, parent, run, [], content, metadata),
            layout.gathered(others, {row[1]: row[5] for row in rows if row[0] == _VALUE}),
            [PendingRow(row[1], row[7], row[2], row[3], row[5]) for row in rows if row[0] == _WRITE],
        )

    async def page(self, listing: CheckpointListing) -> list[FoundCheckpoint]:
        statement, values = listing_checkpoints(listing)
        async with self._snapshot() as connection:
            return await _found(connection, await connection.fetch(for_postgres(statement), *values))

    async def ancestors(
        self, place: ThreadPlace, checkpoint: bytes, prefixes: Sequence[bytes], limit: int
    ) -> list[FoundCheckpoint]:
        async with self._snapshot() as connection:
            rows = await connection.fetch(_ANCESTORS, *place, checkpoint, limit)
            return await _found(connection, rows, tuple(prefixes))

    async def ids(self, place: ThreadPlace) -> list[bytes]:
        return [row[0] for row in await self._fetch(_IDS, *place)]

    async def namespaces(self, thread: bytes) -> list[bytes]:
        return [row[0] for row in await self._fetch(_NAMESPACES, thread)]

    async def of_runs(self, runs: Sequence[bytes]) -> list[tuple[ThreadPlace, bytes]]:
        statement = "SELECT thread, namespace, id FROM langgraph_checkpoints WHERE run = ANY($1)"
        return [(ThreadPlace(row[0], row[1]), row[2]) for row in await self._fetch(statement, list(runs))]

    async def drop(self, place: ThreadPlace, checkpoints: Sequence[bytes]) -> None:
        async with self._transaction() as connection:
            # Nobody may put a checkpoint that refers to a value while we work out which values are still in use.
            await connection.execute("LOCK TABLE langgraph_checkpoints IN SHARE ROW EXCLUSIVE MODE")
            dropped = await connection.fetch(_INLINE, *place, list(checkpoints))
            for table in OF_CHECKPOINTS:
                await connection.execute(
                    f"DELETE FROM {table} WHERE thread = $1 AND namespace = $2 AND id = ANY($3)",
                    *place,
                    list(checkpoints),
                )
            await connection.execute(_UNREFERRED, *place)
            rows = await connection.fetch(_REFERRING, *place)
            kept = [layout_of(refs, homes, None) for refs, homes in rows]
            homeless = moved({name: inline_values(raw) for name, raw in dropped}, kept)
            await connection.execute(_PUT_VALUES, *place, list(homeless), list(homeless.values()))

    async def delete_thread(self, thread: bytes) -> None:
        async with self._transaction() as connection:
            # Nobody may put a checkpoint whose parent is about to go.
            await connection.execute("LOCK TABLE langgraph_checkpoints IN SHARE ROW EXCLUSIVE MODE")
            for table in TABLES:
                await connection.execute(f"DELETE FROM {table} WHERE thread = $1", thread)
        self._homes.forget(thread)

    async def copy_thread(self, source: bytes, target: bytes) -> None:
        async with self._transaction() as connection:
            await connection.execute("LOCK TABLE langgraph_checkpoints IN SHARE ROW EXCLUSIVE MODE")
            for table in TABLES:
                await connection.execute(for_postgres(copying(table)), target, source)

    async def close(self) -> None:
        """In a fork this does nothing: the connections belong to the parent."""
        if self._closed or not self._owner.may_close():
            return
        self._closed = True
        if self._near is not None:
            await self._near.close()
        await self._pool.close()

    # ---- connections

    async def _prepare(self, connection: Connection) -> None:
        """A new connection may lead to a different engine than before: a wiped volume, a swapped host."""
        found = await connection.fetchval(IDENTITY, timeout=self._timeout_s)
        if found != self.identity:
            raise replaced(self.identity, found)
        await check_server(connection, self._reach.commit_mode, self._timeout_s)
        self._abandoned_waits.listen(connection)

    async def _taken(self) -> Connection:
        self._owner.check()
        if self._closed:
            raise StoreClosed("saver")
        return self._pool.take() or await self._pool.acquire(time.monotonic() + self._timeout_s)

    def _given_back(self, connection: Connection, error: BaseException) -> None:
        """After an error. Unless the server told it, the connection is cancelled or broken, in a state unknown."""
        if isinstance(error, asyncpg.PostgresError):
            self._pool.release(connection)
        else:
            self._pool.discard(connection)

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Connection]:
        connection = await self._taken()
        try:
            async with asyncio.timeout(self._timeout_s):
                yield connection
        except BaseException as error:
            self._given_back(connection, error)
            raise
        self._pool.release(connection)

    async def _alone(self, call: str, statement: str, values: Sequence[Any]) -> Any:
        """One statement. It has a time limit of its own, so it needs none of what `_lent` builds around it."""
        connection = await self._taken()
        try:
            answer = await getattr(connection, call)(statement, *values, timeout=self._timeout_s)
            self._abandoned_waits.check(connection)
        except BaseException as error:
            self._given_back(connection, error)
            raise
        self._pool.release(connection)
        return answer

    async def _write(self, statement: str, *values: Any) -> str:
        """What the server says that it did."""
        try:
            return str(await self._alone("execute", statement, values))
        except Exception as error:
            raise write_error(error) from error

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        try:
            async with self._lent() as connection:
                async with connection.transaction():
                    yield connection
                    await connection.execute(WAIT_FOR_STANDBYS)
                self._abandoned_waits.check(connection)
        except Exception as error:
            raise write_error(error) from error

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[Connection]:
        try:
            async with (
                self._lent() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield connection
        except Exception as error:
            raise read_error(error) from error

    async def _fetch(self, statement: str, *values: Any) -> list[Any]:
        try:
            return list(await self._alone("fetch", statement, values))
        except Exception as error:
            raise read_error(error) from error

    # ---- on the caller's own thread: see `NearShelf`

    def _here(self, statement: str, *values: Any) -> WireAnswer:
        if self._near is None or self._closed:
            raise NotHere
        return self._near.run(statement, values)

    def _change_here(self, statement: str, *values: Any) -> WireAnswer:
        try:
            return self._here(statement, *values)
        except OSError as error:
            raise write_error(error) from error

    def _fetch_here(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._here(statement, *values).rows
        except TimeoutError as error:  # the other way would wait as long again
            raise read_error(error) from error
        except OSError as error:
            raise NotHere from error


def _putting(row: CheckpointRow, laid: Laid) -> tuple[str, list[Any]]:
    layout, own_rows = laid.layout, laid.own_rows
    values: list[Any] = [
        *row.place,
        row.id,
        row.parent,
        row.run,
        list(layout.homes),
        row.checkpoint,
        row.metadata,
        list(layout.homes.values()) if layout.other_rows else None,
        msgspec.msgpack.encode(layout.inline) if layout.inline else None,
        layout.checksum(row.id, row.parent),
    ]
    if own_rows:
        values += (list(own_rows), list(own_rows.values()))
    if laid.needs_base:
        values.append(row.base)
    return _PUTS[bool(own_rows), laid.needs_base], values


def _for_child(row: CheckpointRow, found: Sequence[Any]) -> Layout | None:
    """What its base has for it; None if there is no such checkpoint."""
    if not found or row.base is None:
        return None
    [(parent, refs, homes, inline, checksum)] = found
    return for_child(row, layout_of(refs, homes, inline).checked(row.base, parent, checksum))


def _putting_writes(place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]) -> list[Any]:
    # One statement may not change a row twice, so of writes with the same place only the one that stays is sent.
    kept: dict[tuple[bytes, int], PendingRow] = {}
    for write in writes:
        if write.index < 0 or (write.task, write.index) not in kept:
            kept[write.task, write.index] = write
    rows = list(kept.values())
    return [
        *place,
        checkpoint,
        [write.task for write in rows],
        [write.index for write in rows],
        [write.channel for write in rows],
        [write.path for write in rows],
        [write.value for write in rows],
    ]


def _getting(place: ThreadPlace, checkpoint: bytes | None) -> tuple[str, list[bytes]]:
    return (_GET_LATEST, [*place]) if checkpoint is None else (_GET_ONE, [*place, checkpoint])


async def _found(
    connection: Connection, rows: Sequence[Any], prefixes: tuple[bytes, ...] | None = None
) -> list[FoundCheckpoint]:
    """The checkpoints with their values and writes: a few more statements per namespace, however many there are."""
    made = [(_row(row), _layout(row, prefixes)) for row in rows]
    found: list[FoundCheckpoint] = []
    for place in dict.fromkeys(row.place for row, _ in made):
        here = [(row, layout) for row, layout in made if row.place == place]
        refs = {ref for _, layout in here for ref in layout.homes}
        large = await connection.fetch(_VALUES, *place, list(refs)) if refs else []
        homes = {home for _, layout in here for home in layout.other_rows}
        others = await connection.fetch(_INLINE, *place, list(homes)) if homes else []
        inline = {name: inline_values(raw) for name, raw in others}
        own_rows = {row["ref"]: row["value"] for row in large}
        writes: dict[bytes, list[PendingRow]] = {}
        for checkpoint, *write in await connection.fetch(_WRITES, *place, [row.id for row, _ in here]):
            writes.setdefault(checkpoint, []).append(PendingRow(*write))
        found += [
            FoundCheckpoint(row, layout.gathered(inline, own_rows), writes.get(row.id, []))
            for row, layout in here
        ]
    order = {(row.place, row.id): number for number, (row, _) in enumerate(made)}
    return sorted(found, key=lambda one: order[one.row.place, one.row.id])


def _row(found: Sequence[Any]) -> CheckpointRow:
    thread, namespace, checkpoint, parent, run, _, content, metadata, *_ = found
    return CheckpointRow(ThreadPlace(thread, namespace), checkpoint, parent, run, [], content, metadata)


def _layout(row: Sequence[Any], prefixes: tuple[bytes, ...] | None) -> Layout:
    _, _, checkpoint, parent, _, refs, _, _, homes, inline, checksum = row
    layout = layout_of(refs, homes, inline).checked(checkpoint, parent, checksum)
    return layout if prefixes is None else layout.without_others(prefixes)
