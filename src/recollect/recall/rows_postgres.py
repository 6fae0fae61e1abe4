"""Rows in PostgreSQL.

Numbers come from one counter row, whose lock is held until the commit. So commits become visible in the order of their
numbers, and "everything after n" never skips a slower writer, as it would with a PostgreSQL sequence. Writes that
arrive together are one statement (`Batcher`), and so one commit. A write with a cursor is a separate transaction,
because its compare-and-set may fail on its own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg

from recollect.batching import Batcher
from recollect.bounds import INTEGER_MAX
from recollect.erasure import Unreached
from recollect.errors import (
    CannotOpen,
    CredentialsRefused,
    EngineUnavailable,
    RecollectError,
    StoreClosed,
    StoreReplaced,
    advising,
)
from recollect.owner import Owner, to_its_end
from recollect.recall.rows import (
    Change,
    MemoryWrite,
    OtherContent,
    Row,
    Space,
    Written,
    check_cursor,
    forgotten_key,
    moved_away,
    repeated,
)
from recollect.store import Durability, Options
from recollect.stores.postgres.abandoned_waits import WAIT_FOR_STANDBYS, AbandonedWaits
from recollect.stores.postgres.durability import Reach, reach, read_settings
from recollect.stores.postgres.erasing import rewrite_files
from recollect.stores.postgres.errors import DRIVER_ERRORS, read_error, write_error
from recollect.stores.postgres.hosts import Connection, connect
from recollect.stores.postgres.opening import check_not_shared, check_server
from recollect.stores.postgres.pool import PostgresPool

SCHEMA_VERSION = 1

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('recollect recall ' || current_schema(), 0))"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS recall_meta (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    identity uuid NOT NULL DEFAULT gen_random_uuid(),
    schema integer NOT NULL,
    space integer NOT NULL DEFAULT 0,
    embedder text,
    dimension integer
);
CREATE TABLE IF NOT EXISTS recall_counter (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), last bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS recall_memories (
    sequence bigint PRIMARY KEY,
    owner bytea NOT NULL,
    turn bytea,
    part integer NOT NULL,
    forgotten bigint,
    space integer NOT NULL,
    record bytea NOT NULL,
    vector bytea NOT NULL
);
ALTER TABLE recall_memories ALTER vector SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS recall_by_user ON recall_memories (owner, sequence) WHERE forgotten IS NULL;
CREATE INDEX IF NOT EXISTS recall_by_forgotten ON recall_memories (forgotten) WHERE forgotten IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS recall_by_turn ON recall_memories (owner, turn, part) WHERE turn IS NOT NULL;
CREATE TABLE IF NOT EXISTS recall_cursors (conversation bytea PRIMARY KEY, through bigint NOT NULL);
"""

# Added after the first schema; releases without it still work.
_TURNS = """
CREATE TABLE IF NOT EXISTS recall_turns (
    owner bytea NOT NULL, turn bytea NOT NULL, fingerprint bytea, PRIMARY KEY (owner, turn)
)"""

# Counter and insert in one statement: an error means that nothing was written. A turn is claimed by its row, after the
# counter's lock: if two arrive at once, one of them is stored, as a whole. A turn already stored inserts nothing; the
# numbers it got then are looked up afterwards.
_WRITE = """
WITH counter AS (
    UPDATE recall_counter SET last = last + cardinality($2::bytea[])
     WHERE (SELECT space FROM recall_meta) = $6
    RETURNING last - cardinality($2::bytea[]) AS base
), claimed AS (
    INSERT INTO recall_turns (owner, turn, fingerprint)
    SELECT DISTINCT new.owner, new.turn, new.fingerprint
      FROM counter, unnest($1::bytea[], $4::bytea[], $7::bytea[]) AS new (owner, turn, fingerprint)
     WHERE new.turn IS NOT NULL AND NOT EXISTS (
           SELECT FROM recall_memories known WHERE known.owner = new.owner AND known.turn = new.turn)
    ON CONFLICT DO NOTHING
    RETURNING owner, turn
)
INSERT INTO recall_memories (sequence, owner, turn, part, space, record, vector)
SELECT base + new.place, new.owner, new.turn, new.part, $6, new.record, new.vector
  FROM counter, unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::int[])
       WITH ORDINALITY AS new (owner, record, vector, turn, part, place)
 WHERE new.turn IS NULL
    OR EXISTS (SELECT FROM claimed WHERE claimed.owner = new.owner AND claimed.turn = new.turn)
ON CONFLICT (owner, turn, part) WHERE turn IS NOT NULL DO NOTHING
RETURNING sequence, owner, turn, part"""

_KNOWN = """
SELECT sequence, fingerprint FROM recall_memories LEFT JOIN recall_turns USING (owner, turn)
 WHERE owner = $1 AND turn = $2 ORDER BY part"""

_CHANGES = """
(SELECT sequence AS at, sequence, owner, vector FROM recall_memories
  WHERE sequence > $1 AND forgotten IS NULL ORDER BY sequence LIMIT $2)
UNION ALL
(SELECT forgotten, sequence, NULL, NULL FROM recall_memories WHERE forgotten > $1 ORDER BY forgotten LIMIT $2)
ORDER BY at LIMIT $2"""

_FORGET = """
WITH gone AS (
    SELECT sequence, row_number() OVER () AS place FROM recall_memories
     WHERE owner = $1 AND forgotten IS NULL AND ($2::bigint[] IS NULL OR sequence = ANY($2))
), counter AS (
    UPDATE recall_counter SET last = last + (SELECT count(*) FROM gone)
    RETURNING last - (SELECT count(*) FROM gone) AS base
)
UPDATE recall_memories m SET forgotten = base + gone.place, record = '', vector = ''
  FROM gone, counter WHERE m.sequence = gone.sequence AND m.forgotten IS NULL
RETURNING m.sequence"""

_COUNT_FORGOTTEN = """
INSERT INTO recall_cursors AS known VALUES ($1, 1)
ON CONFLICT (conversation) DO UPDATE SET through = known.through + 1"""

_CURSORS = "SELECT conversation, through FROM recall_cursors WHERE conversation = ANY($1)"

_ROW = "SELECT sequence, owner, record, vector FROM recall_memories "

_SETTLED = f"{WAIT_FOR_STANDBYS} WHERE current_setting('synchronous_standby_names') <> ''"

Value = TypeVar("Value")


class PostgresRows:
    """See `recollect.recall.rows.Rows`. Made by `PostgresRows.open("postgresql://…", options)`."""

    def __init__(self, url: str, options: Options, identity: str, reached: Reach) -> None:
        self._timeout_s = options.timeout_s
        self._reach = reached
        self.identity = identity
        self.notice = reached.notice
        self._pool = PostgresPool(url, options.pool_size, self._prepare)
        self._batcher = Batcher[MemoryWrite, Written](self._run, timeout_s=options.timeout_s)
        self._abandoned_waits = AbandonedWaits()
        self._closed = False
        self._owner = Owner()

    @classmethod
    async def open(cls, url: str, options: Options) -> "PostgresRows":
        deadline = time.monotonic() + options.timeout_s
        connection = await connect(url, deadline)
        try:
            await check_not_shared(connection, url, deadline)
            async with connection.transaction():
                await connection.execute(_LOCK, timeout=options.timeout_s)
                identity = await _prepare_schema(connection, options)
            reached = reach(await read_settings(connection, options.timeout_s), options)
        except DRIVER_ERRORS as error:
            raise read_error(error) from error
        finally:
            await connection.close()
        return cls(url, options, identity, reached)

    @property
    def durability(self) -> Durability:
        return self._reach.durability

    # ---- writing

    async def write(self, write: MemoryWrite) -> Written:
        self._owner.check()
        if self._closed:
            raise StoreClosed("memory")
        if write.cursor is None and write.drafts:
            return await self._batcher.submit(write)
        return await self._transaction(
            lambda connection: _write_with_cursor(connection, write, self.durability)
        )

    async def settled(self) -> None:
        await self._send(_SETTLED)

    async def forget(self, user: bytes, sequences: Sequence[int] | None) -> int:
        with advising("forget again"):
            return await self._forget(user, sequences)

    async def _forget(self, user: bytes, sequences: Sequence[int] | None) -> int:
        if sequences is not None:
            return len(await self._send(_FORGET, user, list(sequences)))

        async def run(connection: Connection) -> int:
            # The lock first: a statement does not see what was committed while it waited for it.
            await connection.execute("UPDATE recall_counter SET last = last")
            await connection.execute(_COUNT_FORGOTTEN, forgotten_key(user))
            return len(await connection.fetch(_FORGET, user, None))

        return await self._transaction(run)

    async def erase(self) -> tuple[list[str], list[Unreached]]:
        async def run(connection: Connection) -> tuple[list[str], list[Unreached]]:
            now = await connection.fetchval("SELECT pg_current_xact_id()::xid::text", timeout=self._timeout_s)
            try:
                return await rewrite_files(connection, now, self._timeout_s, ("recall_memories",))
            finally:
                self._abandoned_waits.disregard(connection)

        return await self._on_a_connection(run)

    async def probe(self) -> None:
        await self._send("UPDATE recall_counter SET last = last")

    async def move(self, space: Space) -> None:
        await self._send(
            "UPDATE recall_meta SET space = $1, embedder = $2, dimension = $3",
            space.number,
            space.name,
            space.dimension,
        )

    async def restate(self, vectors: Sequence[tuple[int, bytes]], space: int) -> None:
        statement = (
            "UPDATE recall_memories m SET vector = new.vector, space = $3 "
            "FROM unnest($1::bigint[], $2::bytea[]) AS new (sequence, vector) "
            "WHERE m.sequence = new.sequence AND m.forgotten IS NULL"
        )
        await self._send(
            statement, [number for number, _ in vectors], [vector for _, vector in vectors], space
        )

    async def space(self, name: str, dimension: int) -> Space:
        await self._send(
            "UPDATE recall_meta SET space = 1, embedder = $1, dimension = $2 WHERE embedder IS NULL",
            name,
            dimension,
        )
        rows = await self._fetch("SELECT space, embedder, dimension FROM recall_meta")
        return Space(*rows[0])

    # ---- reading

    async def changes(self, after: int, limit: int) -> list[Change]:
        return [Change(*row) for row in await self._fetch(_CHANGES, after, limit)]

    async def scan(self, user: bytes, after: int, limit: int) -> list[tuple[int, bytes]]:
        statement = (
            "SELECT sequence, vector FROM recall_memories "
            "WHERE owner = $1 AND forgotten IS NULL AND sequence > $2 ORDER BY sequence LIMIT $3"
        )
        return [(row[0], row[1]) for row in await self._fetch(statement, user, after, limit)]

    async def fetch(self, user: bytes, sequences: Sequence[int]) -> list[Row]:
        statement = _ROW + "WHERE sequence = ANY($1) AND owner = $2 AND forgotten IS NULL"
        return await self._rows(statement, list(sequences), user)

    async def newest(self, user: bytes, before: int | None, limit: int) -> list[Row]:
        statement = (
            _ROW + "WHERE owner = $1 AND forgotten IS NULL AND sequence < $2 ORDER BY sequence DESC LIMIT $3"
        )
        return await self._rows(statement, user, INTEGER_MAX if before is None else before, limit)

    async def held(self, user: bytes, limit: int) -> int:
        statement = (
            "SELECT count(*) FROM "
            "(SELECT FROM recall_memories WHERE owner = $1 AND forgotten IS NULL LIMIT $2) AS held"
        )
        return int((await self._fetch(statement, user, limit))[0][0])

    async def totals(self) -> tuple[int, int]:
        statement = (
            "SELECT (SELECT last FROM recall_counter), "
            "(SELECT count(*) FROM recall_memories WHERE forgotten IS NULL)"
        )
        (row,) = await self._fetch(statement)
        return row[0], row[1]

    async def sample(self, points: Sequence[int]) -> list[Row]:
        statement = (
            "SELECT m.* FROM unnest($1::bigint[]) AS point CROSS JOIN LATERAL ("
            + _ROW
            + "WHERE sequence >= point AND forgotten IS NULL ORDER BY sequence LIMIT 1) AS m"
        )
        return await self._rows(statement, list(points))

    async def strays(self, space: int, limit: int) -> list[Row]:
        statement = _ROW + "WHERE space <> $1 AND forgotten IS NULL ORDER BY sequence LIMIT $2"
        return await self._rows(statement, space, limit)

    async def summarised(self, user: bytes, conversation: bytes) -> tuple[int, int]:
        keys = [conversation, forgotten_key(user)]
        return _cursors(keys, await self._fetch(_CURSORS, keys))

    async def close(self) -> None:
        """In a fork this does nothing: the connections belong to the parent."""
        if self._closed or not self._owner.may_close():
            return
        self._closed = True
        await to_its_end(self._close())

    async def _close(self) -> None:
        await self._batcher.drain()
        await self._pool.close()

    # ---- statements

    async def _run(self, writes: list[MemoryWrite]) -> list[Written | Exception]:
        first = {(write.user, write.turn): write for write in reversed(writes)}
        sent = [write for write in writes if write.turn is None or first[write.user, write.turn] is write]
        new = [(write, part, draft) for write in sent for part, draft in enumerate(write.drafts)]
        rows = await self._send(
            _WRITE,
            [write.user for write, _, _ in new],
            [draft.record for _, _, draft in new],
            [draft.vector for _, _, draft in new],
            [write.turn for write, _, _ in new],
            [part for _, part, _ in new],
            writes[0].space,
            [write.fingerprint for write, _, _ in new],
        )
        if not rows and any(write.turn is None for write in writes):
            found = (await self._fetch("SELECT space FROM recall_meta"))[0][0]
            return [moved_away(write.space, found) for write in writes]
        by_turn: dict[tuple[bytes, bytes], list[int]] = {}
        plain: list[int] = []
        for sequence, owner, turn, _ in sorted(rows):
            if turn is None:
                plain.append(sequence)
            else:
                by_turn.setdefault((owner, turn), []).append(sequence)
        return [await self._written(write, by_turn, plain) for write in writes]

    async def _written(
        self, write: MemoryWrite, by_turn: dict[tuple[bytes, bytes], list[int]], plain: list[int]
    ) -> Written | Exception:
        """The numbers a write was given. Writes without a turn come in the order they were sent."""
        if write.turn is None:
            numbers, plain[: len(write.drafts)] = plain[: len(write.drafts)], []
            return Written(numbers, self.durability)
        numbers = by_turn.pop((write.user, write.turn), [])  # the next one with this turn is a retry
        if len(numbers) == len(write.drafts):
            return Written(numbers, self.durability)
        known = await self._fetch(_KNOWN, write.user, write.turn)
        if known:
            try:
                return repeated([row[0] for row in known], known[0][1], write, self.durability)
            except OtherContent as error:
                return error
        found = (await self._fetch("SELECT space FROM recall_meta"))[0][0]
        return moved_away(write.space, found)

    async def _transaction(self, run: Callable[[Connection], Awaitable[Value]]) -> Value:
        async def within(connection: Connection) -> Value:
            async with asyncio.timeout(self._timeout_s):
                async with connection.transaction():
                    return await run(connection)

        return await self._on_a_connection(within)

    async def _rows(self, statement: str, *arguments: Any) -> list[Row]:
        return [Row(*row) for row in await self._fetch(statement, *arguments)]

    async def _fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """Rows of a read; tried again on a fresh connection if the pooled one had ended."""
        for attempt in (1, 2):
            connection = self._pool.take() or await self._pool.acquire(time.monotonic() + self._timeout_s)
            try:
                rows = await connection.fetch(statement, *arguments, timeout=self._timeout_s)
            except (Exception, asyncio.CancelledError) as error:
                ended = connection.is_closed()
                self._pool.discard(connection)
                if isinstance(error, asyncio.CancelledError):
                    raise
                if ended and attempt == 1:
                    continue
                raise read_error(error) from error
            self._pool.release(connection)
            return rows
        raise AssertionError("unreachable")

    async def _send(self, statement: str, *arguments: Any) -> list[Any]:
        """Rows of a write."""
        return await self._on_a_connection(
            lambda connection: connection.fetch(statement, *arguments, timeout=self._timeout_s)
        )

    async def _on_a_connection(self, run: Callable[[Connection], Awaitable[Value]]) -> Value:
        """The result of a write, which is sent once; an error says whether it was written."""
        try:
            connection = self._pool.take() or await self._pool.acquire(time.monotonic() + self._timeout_s)
        except (EngineUnavailable, CredentialsRefused) as error:
            raise write_error(error) from error
        try:
            value = await run(connection)
        except RecollectError:
            self._pool.release(connection)
            raise
        except asyncpg.PostgresError as error:
            self._pool.release(connection)
            raise write_error(error) from error
        except BaseException as error:
            self._pool.discard(connection)
            if isinstance(error, Exception):
                raise write_error(error) from error
            raise
        self._pool.release(connection)
        self._abandoned_waits.check(connection)
        return value

    async def _prepare(self, connection: Connection) -> None:
        """A new connection may lead to a different engine than before."""
        try:
            found = await connection.fetchval(
                "SELECT identity::text FROM recall_meta", timeout=self._timeout_s
            )
        except asyncpg.UndefinedTableError:
            found = None
        if found != self.identity:
            raise StoreReplaced(
                f"this is not the memory that was opened ({self.identity}): {found or 'none'} answers at its address. "
                "It was wiped, swapped or restored from nothing"
            )
        await check_server(connection, self._reach.commit_mode, self._timeout_s)
        self._abandoned_waits.listen(connection)


async def _prepare_schema(connection: Connection, options: Options) -> str:
    version = None
    if await connection.fetchval("SELECT to_regclass('recall_meta') IS NOT NULL"):
        version = await connection.fetchval("SELECT schema FROM recall_meta")
    if version is None:
        if not options.migrate:
            raise CannotOpen(
                "there is no long-term memory here yet, and migrate=False does not allow creating it"
            )
        await connection.execute(_SCHEMA, timeout=options.timeout_s)
        await connection.execute(
            "INSERT INTO recall_meta (schema) VALUES ($1) ON CONFLICT DO NOTHING", SCHEMA_VERSION
        )
        await connection.execute("INSERT INTO recall_counter (last) VALUES (0) ON CONFLICT DO NOTHING")
    elif version > SCHEMA_VERSION:
        raise CannotOpen(
            f"the long-term memory has schema {version}, this release knows {SCHEMA_VERSION}: upgrade recollect"
        )
    if not await connection.fetchval("SELECT to_regclass('recall_turns') IS NOT NULL"):
        await connection.execute(_TURNS, timeout=options.timeout_s)
    return str(await connection.fetchval("SELECT identity::text FROM recall_meta"))


def _cursors(keys: Sequence[bytes], found: Sequence[Any]) -> tuple[int, int]:
    """See `Rows.summarised`."""
    known = dict(found)
    return known.get(keys[0], 0), known.get(keys[1], 0)


async def _write_with_cursor(connection: Connection, write: MemoryWrite, durability: Durability) -> Written:
    assert write.turn is None, "a summary's cursor is its own compare-and-set"
    # The counter's lock is taken first, so that two summarisers of one conversation take turns.
    size = len(write.drafts)
    row = await connection.fetchrow(
        "UPDATE recall_counter SET last = last + $1 RETURNING last - $1, (SELECT space FROM recall_meta)",
        size,
    )
    assert row is not None
    base, space = row
    if space != write.space:
        raise moved_away(write.space, space)
    if write.cursor is not None:
        cursor = write.cursor
        keys = [cursor.conversation, forgotten_key(write.user)]
        check_cursor(cursor, *_cursors(keys, await connection.fetch(_CURSORS, keys)))
        await connection.execute(
            "INSERT INTO recall_cursors VALUES ($1, $2) ON CONFLICT (conversation) DO UPDATE SET through = $2",
            cursor.conversation,
            cursor.through,
        )
    numbers = list(range(base + 1, base + 1 + size))
    await connection.executemany(
        "INSERT INTO recall_memories (sequence, owner, turn, part, space, record, vector) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7)",
        [
            (number, write.user, write.turn, part, write.space, draft.record, draft.vector)
            for part, (number, draft) in enumerate(zip(numbers, write.drafts, strict=True))
        ],
    )
    return Written(numbers, durability)
