"""Memory in PostgreSQL 15 to 18.

How it writes. An append is one statement, and so one round trip and one transaction. A lone append updates the
session's counter and inserts its records in a single data-modifying query. Appends that arrive while others are under
way are sent together (`Batcher`) to a function in the engine, which serves each on its own terms: one's conflict
leaves the others alone. Order comes from the counter in the session's row, whose lock serialises the writers.

How it reads. `history` is one statement, and so one snapshot, of the session's row and the rows of its messages: the
counter tells what must be there, and what is not becomes a `Damaged` item. With `read_url` the primary is asked only
for the counter, and a replica for the messages. The replica's snapshot must show a counter at least as new; a commit is
replayed whole, so then its messages are there too. That is exact where comparing WAL positions would be coarse: a
replica that lags with other sessions still serves this one. If it lags, is gone, slow or promoted, the primary serves.

How it fails. Each statement is its own transaction, so an error reported by the engine means that nothing was written;
a connection that ends in between means that nobody knows. See `postgres_errors`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg

from recollect.appending import Append, check_window, checked_append, session_key, session_of
from recollect.batching import Batcher
from recollect.errors import (
    Conflict,
    DurabilityUnavailable,
    EngineUnavailable,
    NotWritten,
    RecollectError,
    StoreReplaced,
)
from recollect.message import Damaged, Message, decode
from recollect.store import Durability, Options, Receipt, SessionState, Stored
from recollect.stores import postgres_schema as schema
from recollect.stores.postgres_durability import Reach, reach, read_settings
from recollect.stores.postgres_errors import read_error, write_error
from recollect.stores.postgres_opening import check_server, open_schema
from recollect.stores.postgres_pool import Connection, Pool
from recollect.witness import Witness

log = logging.getLogger("recollect")

KNOWN_MAX = 10_000
"""Sessions known to exist, for which the lone append's statement is tried first."""

BATCH_BYTES_MAX = 32 * 1024 * 1024
"""Records sent in one statement, unless a single turn has more."""

IN_FLIGHT_MAX = 2

NO_LIMIT = 2**62

SETTINGS_CHANGED = "RC001"
"""Raised by `recollect_append`, before it writes anything."""


class PostgresStore:
    """See `recollect.store.Store` for the contract. Made by `open_store("postgresql://…")`."""

    def __init__(self, url: str, options: Options, identity: str, reached: Reach) -> None:
        self._options = options
        self._timeout_s = options.timeout_s
        self._ttl_kept = options.ttl is not None and options.refresh == "never"
        self._touch_on_read = options.ttl is not None and options.refresh == "read"
        self._turns_max = options.turns_kept + options.turns_kept // 8 + 16  # as in recollect_append
        self._reach = reached
        self._witness: Witness | None = None
        self._identity = identity
        self._pool = Pool(url, options.pool_size, options.timeout_s, self._prepare)
        self._replica = (
            None
            if options.read_url is None
            else Pool(options.read_url, options.pool_size, options.timeout_s / 2)
        )
        self._batcher = Batcher[Append, Receipt](
            self._run, timeout_s=options.timeout_s, in_flight_max=min(IN_FLIGHT_MAX, options.pool_size)
        )
        self._under_way = 0
        self._known: set[bytes] = set()
        self._closed = False

    @classmethod
    async def open(cls, url: str, options: Options) -> "PostgresStore":
        identity, settings = await open_schema(url, options)
        store = cls(url, options, identity, reach(settings, options))
        try:
            if options.witness is not None:
                store._witness = await Witness.check(options.witness, identity, store._last_sequence)
        except BaseException:
            await store.close()
            raise
        if store.notice:
            log.warning("PostgreSQL: %s", store.notice)
        return store

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def durability(self) -> Durability:
        return self._reach.durability

    @property
    def notice(self) -> str | None:
        return self._reach.notice

    # ---- the contract

    async def append(
        self, session: str, messages: Sequence[Message], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        append = checked_append(session, messages, turn, expect)
        if self._closed:
            raise NotWritten("the store is closed")
        if self._under_way:
            receipt = await self._batcher.submit(append)
        else:
            (result,) = await self._run([append])
            if isinstance(result, Exception):
                raise result
            receipt = result
        if self._witness is not None:
            self._witness.note(session, receipt.last)
        return receipt

    async def history(
        self, session: str, *, last: int | None = None, after: int | None = None
    ) -> list[Stored]:
        check_window(last, after)
        key = session_key(session)
        after = min(after or 0, NO_LIMIT)
        last = NO_LIMIT if last is None else min(last, NO_LIMIT)
        if self._touch_on_read:
            await self._touch(key)
        if last == 0:
            return []
        rows = None if self._replica is None else await self._replica_rows(self._replica, key, after, last)
        if rows is None:
            rows = await self._fetch(self._pool, schema.HISTORY, key, after, last)
        return _placed(rows, after, last)

    async def forget(self, session: str) -> None:
        deadline = time.monotonic() + self._timeout_s
        unfreed = await self._write_value(
            schema.FORGET, session_key(session), schema.ROWS_FREED_MAX, self._reach.commit_mode
        )
        while unfreed is not None and await self._write_value(schema.FREE, unfreed, schema.ROWS_FREED_MAX):
            if time.monotonic() > deadline:
                log.warning("a forgotten session was too large to free at once; sweep() frees the rest")
                break

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._batcher.drain()
        if self._witness is not None:
            await self._witness.close()
        await self._pool.close()
        if self._replica is not None:
            await self._replica.close()

    async def state(self, session: str) -> SessionState:
        rows = await self._fetch(self._pool, schema.SESSION, session_key(session))
        if not rows:
            return SessionState.ABSENT
        last, floor, expires, expired = rows[0]
        if floor == last:  # expired and swept, or forgotten, which ends any time to live
            return SessionState.EXPIRED if expires else SessionState.FORGOTTEN
        return SessionState.EXPIRED if expired else SessionState.LIVE

    async def sweep(self) -> int:
        expired, above = 0, 0
        while rows := await self._write(schema.EXPIRE, above):
            expired += len(rows)
            above = max(row[0] for row in rows)
        above = 0
        while rows := await self._fetch(self._pool, schema.FREEABLE, above):
            for (session_id,) in rows:
                while await self._write_value(schema.FREE, session_id, schema.ROWS_FREED_MAX):
                    pass
            above = rows[-1][0]
        return expired

    async def sessions(self) -> AsyncIterator[str]:
        above = 0
        while rows := await self._fetch(self._pool, schema.LIVE_SESSIONS, above):
            for _, name in rows:
                yield session_of(name)
            above = rows[-1][0]

    # ---- appending

    async def _run(self, appends: list[Append]) -> list[Receipt | Exception]:
        self._under_way += 1
        try:
            if len(appends) == 1:
                return [await self._append_one(appends[0])]
            return await self._append_many(appends)
        finally:
            self._under_way -= 1

    async def _append_one(self, append: Append) -> Receipt | Exception:
        if append.key not in self._known:
            return (await self._append_many([append]))[0]
        records, turn, reached = append.records, append.turn, self._reach
        many = len(records) > 1
        arguments = [
            append.key,
            records if many else records[0],
            append.expect,
            self._options.ttl,
            self._ttl_kept,
            reached.commit_mode,
            reached.fingerprint,
        ]
        if turn is not None:
            arguments += [turn, self._turns_max]
        try:
            rows = await self._write(schema.APPEND_ONE[many, turn is not None], *arguments)
        except NotWritten as error:
            if not isinstance(error.__cause__, asyncpg.UniqueViolationError):
                raise
            rows = []  # another append with this turn id was faster
        if not rows:
            return (await self._append_many([append]))[0]
        last = rows[0][0]
        return Receipt(append.session, last - len(records) + 1, last, reached.durability, reached.replicas)

    async def _append_many(self, appends: list[Append]) -> list[Receipt | Exception]:
        """Each append's receipt or error, in the order given."""
        results: list[Receipt | Exception] = [NotWritten("not sent")] * len(appends)
        # Sessions are locked in this order by every writer, so that no two wait for each other.
        order = sorted(range(len(appends)), key=lambda place: appends[place].key)
        for places in _portions(appends, order):
            portion = [appends[place] for place in places]
            try:
                outcomes: Sequence[Receipt | Exception] = await self._send(portion)
            except RecollectError as error:
                outcomes = [error] * len(portion)
            for place, outcome in zip(places, outcomes, strict=True):
                results[place] = outcome
        return results

    async def _send(self, appends: list[Append]) -> list[Receipt | Exception]:
        for _ in range(2):
            reached = self._reach
            try:
                outcomes = await self._write_value(
                    schema.APPEND,
                    [append.key for append in appends],
                    [len(append.records) for append in appends],
                    [record for append in appends for record in append.records],
                    [append.turn for append in appends],
                    [append.expect for append in appends],
                    self._options.ttl,
                    self._ttl_kept,
                    self._options.turns_kept,
                    reached.commit_mode,
                    reached.fingerprint,
                )
            except RecollectError as error:
                if getattr(error.__cause__, "sqlstate", None) != SETTINGS_CHANGED:
                    raise
                await self._reach_again()
                continue
            if len(self._known) > KNOWN_MAX:
                self._known.clear()
            self._known.update(append.key for append in appends)
            return [
                _outcome(append, reached, *outcomes[3 * place : 3 * place + 3])
                for place, append in enumerate(appends)
            ]
        raise NotWritten("PostgreSQL's durability settings keep changing; nothing was written")

    async def _reach_again(self) -> None:
        """The server's settings changed under the open store: receipts must claim what they give now."""
        try:
            connection = await self._pool.acquire()
        except EngineUnavailable as error:
            raise write_error(error) from error
        try:
            self._reach = reach(await read_settings(connection, self._timeout_s), self._options)
        except DurabilityUnavailable as error:
            raise NotWritten(f"{error}; nothing was written") from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise NotWritten(f"PostgreSQL's settings changed and cannot be read: {error}") from error
        finally:
            self._pool.release(connection)
        log.warning("PostgreSQL's durability settings changed: %s", self.notice or "nothing can be lost now")

    # ---- reading

    async def _replica_rows(
        self, replica: Pool, key: bytes, after: int, last: int
    ) -> Sequence[asyncpg.Record] | None:
        """The rows from the replica; none if the primary says so; None if the replica must not be trusted."""
        known = await self._fetch(self._pool, schema.SESSION, key)
        if not known:
            return ()
        newest, floor, _, expired = known[0]
        if expired or floor == newest:
            return ()
        try:
            rows = await self._fetch(replica, schema.HISTORY_REPLICA, key, after, last, newest, floor)
        except RecollectError as error:
            log.info("the read replica does not serve (%s); reading from the primary", error)
            return None
        return rows or None

    async def _touch(self, key: bytes) -> None:
        """Restarts the time to live. A statement of its own: an update sees newer rows than its query's snapshot."""
        try:
            await self._write(schema.TOUCH, key, self._options.ttl)
        except NotWritten as error:
            raise EngineUnavailable(f"the time to live was not restarted: {error}") from error

    async def _last_sequence(self, session: str) -> int:
        rows = await self._fetch(self._pool, schema.SESSION, session_key(session))
        return rows[0][0] if rows else 0

    # ---- statements

    async def _prepare(self, connection: Connection) -> None:
        """A new connection may lead to another engine than the last one: a wiped volume, a swapped host."""
        version = await schema.read_version(connection, self._timeout_s)
        found = None if version is None else version.identity
        if found != self._identity:
            raise StoreReplaced(
                f"this is not the store that was opened ({self._identity}): {found or 'no store'} answers at its "
                "address. It was wiped, swapped or restored from nothing"
            )
        await check_server(connection, self._reach.commit_mode, self._timeout_s)

    async def _fetch(self, pool: Pool, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Rows of a read; once more on a fresh connection if the one from the pool had ended."""
        for attempt in (1, 2):
            connection = await pool.acquire()
            try:
                rows = await connection.fetch(statement, *arguments, timeout=self._timeout_s)
            except (Exception, asyncio.CancelledError) as error:
                ended = connection.is_closed()
                pool.discard(connection)
                if isinstance(error, asyncio.CancelledError):
                    raise
                if ended and attempt == 1:
                    continue
                raise read_error(error) from error
            pool.release(connection)
            return rows
        raise AssertionError("unreachable")

    async def _write_value(self, statement: str, *arguments: Any) -> Any:
        rows = await self._write(statement, *arguments)
        return rows[0][0]

    async def _write(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Rows of a write, sent once."""
        try:
            connection = await self._pool.acquire()
        except EngineUnavailable as error:
            raise write_error(error) from error
        try:
            rows = await connection.fetch(statement, *arguments, timeout=self._timeout_s)
        except asyncpg.PostgresError as error:
            self._pool.release(connection)  # which drops it if it has ended
            raise write_error(error) from error
        except Exception as error:
            self._pool.discard(connection)
            raise write_error(error) from error
        except asyncio.CancelledError:
            self._pool.discard(connection)
            raise
        self._pool.release(connection)
        return rows


def _portions(appends: list[Append], order: list[int]) -> list[list[int]]:
    """Places of the appends, in order, cut where a statement would grow too large."""
    portions: list[list[int]] = [[]]
    size = 0
    for place in order:
        grown = size + sum(map(len, appends[place].records))
        if portions[-1] and grown > BATCH_BYTES_MAX:
            portions.append([])
            grown -= size
        portions[-1].append(place)
        size = grown
    return portions


def _outcome(append: Append, reached: Reach, outcome: int, first: int, last: int) -> Receipt | Conflict:
    if outcome == schema.CONFLICT:
        assert append.expect is not None
        return Conflict(append.session, append.expect, last)
    return Receipt(append.session, first, last, reached.durability, reached.replicas)


def _placed(rows: Sequence[asyncpg.Record], after: int, last: int) -> list[Stored]:
    """The messages in their places; where rows are missing below the counter, a `Damaged` item says so."""
    if not rows:
        return []
    newest, floor, first_sequence, _ = rows[0]
    expected = max(floor, after, newest - last) + 1
    if first_sequence is not None and len(rows) == newest - expected + 1:
        return [Stored(sequence, decode(record)) for _, _, sequence, record in rows]
    placed: list[Stored] = []
    for _, _, sequence, record in rows if first_sequence is not None else ():
        if sequence > expected:
            placed.append(_missing(expected, sequence - 1))
        placed.append(Stored(sequence, decode(record)))
        expected = sequence + 1
    if expected <= newest:
        placed.append(_missing(expected, newest))
    return placed


def _missing(first: int, last: int) -> Stored:
    which = f"message {first} is" if first == last else f"messages {first} to {last} are"
    return Stored(
        first, Damaged(b"", f"{which} gone: deleted outside of recollect, or lost by the engine or a restore")
    )
