"""Memory in PostgreSQL 15 to 18.

How it writes. An append is one statement, and so one round trip and one transaction. A lone append updates the
session's counter and inserts its records in a single data-modifying query. Appends that arrive while others are
running are sent together (`Batcher`): those to sessions that this store has written to before in one statement for all
of them (`batches`), and what that leaves out to a function in the engine, which handles each one separately. Either
way a conflict in one does not affect the others. Order comes from the counter in the session's row, whose lock
serialises the writers.

How it reads. `history` is one statement, and so one snapshot, of the session's row and the rows of its messages: the
counter says what must be there, and what is missing becomes a `Damaged` item. With `read_url` the primary is asked
only for the counter, and a replica for the messages. The replica's snapshot must show a counter at least as new; a
commit is replayed whole, so then its messages are there too. That is more precise than comparing WAL positions: a
replica that lags with other sessions can still serve this one. If it lags, or is gone, slow or promoted, the primary
serves.

How it fails. Each statement is its own transaction, so an error reported by the engine means that nothing was written;
if the connection ends before the answer, nobody knows. See `errors`.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import asyncpg

from recollect.appending import Append, Said, checked_append, checked_window, session_key
from recollect.batching import Batcher
from recollect.bounds import INTEGER_MAX
from recollect.erasure import TRACE_LIFE, TRACES_MAX, Erasure, erasure, trace_of
from recollect.errors import (
    CredentialsRefused,
    DurabilityUnavailable,
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    StoreClosed,
    advising,
)
from recollect.known import Known, KnownSessions
from recollect.owner import Owner, to_its_end
from recollect.slices import finished, too_long
from recollect.store import Durability, Options, Receipt, SessionState, Stored
from recollect.stores.postgres import schema
from recollect.stores.postgres.abandoned_waits import AbandonedWaits
from recollect.stores.postgres.batches import Batch, lone_statement
from recollect.stores.postgres.changes import expected, outcomes_of, state_of
from recollect.stores.postgres.durability import Reach, reach, read_settings
from recollect.stores.postgres.erasing import erase_rows, rewrite_files
from recollect.stores.postgres.errors import DRIVER_ERRORS, read_error, row_changed, write_error
from recollect.stores.postgres.hosts import Connection, remaining_s
from recollect.stores.postgres.losses import replaced
from recollect.stores.postgres.moving import PostgresMoving
from recollect.stores.postgres.opening import check_server, open_schema
from recollect.stores.postgres.pool import PostgresPool
from recollect.stores.postgres.rows import Row, placing, placing_marked
from recollect.tombstone import newest, records_for
from recollect.witness import Witness

log = logging.getLogger("recollect")

BATCH_BYTES_MAX = 32 * 1024 * 1024
"""Records sent in one statement, unless a single turn has more."""

IN_FLIGHT_MAX = 2


class PostgresStore(PostgresMoving):
    """See `recollect.store.Store` for the contract. Made by `open_store("postgresql://…")`."""

    def __init__(self, url: str, options: Options, identity: str, reached: Reach, timeline: int = 0) -> None:
        self._options = options
        self._timeout_s = options.timeout_s
        self._ttl_kept = options.ttl is not None and options.refresh == "never"
        self._touch_on_read = options.ttl is not None and options.refresh == "read"
        self._turns_max = options.turns_kept + options.turns_kept // 8 + 16  # as in recollect_append
        self._reach = reached
        self._witness: Witness | None = None
        self._identity = identity
        self._pool = PostgresPool(url, options.pool_size, self._prepare, timeline=timeline)
        self._replica = (
            None
            if options.read_url is None
            else PostgresPool(
                options.read_url.reveal(), options.pool_size, self._prepare_replica, standby=True
            )
        )
        lanes = min(IN_FLIGHT_MAX, options.pool_size)
        self._batcher = Batcher[Append, Receipt](
            self._run,
            timeout_s=options.timeout_s,
            in_flight_max=lanes,
            queue=f"for one of the {lanes} connections of the pool that write (pool_size={options.pool_size})",
            place=attrgetter("key"),
        )
        self._abandoned_waits = AbandonedWaits()
        self._known = KnownSessions()
        self._closed = False
        self._owner = Owner()

    @classmethod
    async def open(cls, url: str, options: Options) -> "PostgresStore":
        """Opens the memory at the address and checks that what was asked for can be kept; `open_store` calls this."""
        identity, settings, timeline = await open_schema(url, options)
        store = cls(url, options, identity, reach(settings, options), timeline)
        try:
            if options.witness is not None:
                store._witness = await Witness.check(options, identity, store.position)
        except BaseException:
            await store.close()
            raise
        if store.notice:
            log.warning("PostgreSQL: %s", store.notice)
        return store

    @property
    def identity(self) -> str:
        """The UUID the store was given when it was first opened: another one means another memory."""
        return self._identity

    @property
    def durability(self) -> Durability:
        """The least that every receipt of this store promises."""
        return self._reach.durability

    @property
    def notice(self) -> str | None:
        """What could be lost with the engine's settings, or None; logged once at open."""
        return self._reach.notice

    # ---- the contract

    async def append(
        self, session: str, messages: Sequence[Said], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """Stores the messages as one turn, whole or not at all, and says what the write survives."""
        append = checked_append(session, messages, turn, expect)
        self._owner.check()
        if self._closed:
            raise StoreClosed
        known, sent_at = self._known.of(append.key), time.monotonic()
        if self._batcher.alone():
            receipt = await self._batcher.run_alone(self._append_one(append))
        else:
            receipt = await self._batcher.submit(append)
        self._note(session, known, receipt.last, sent_at)
        return receipt

    async def history(
        self, session: str, *, last: int | None = None, after: int | None = None
    ) -> list[Stored]:
        """The session's live messages in order: all, the `last` n, or those with a sequence above `after`."""
        last, after = checked_window(last, after)
        key = session_key(session)
        after = after or 0
        last = INTEGER_MAX if last is None else last
        deadline = time.monotonic() + self._timeout_s
        known = self._known.of(key)
        # Taken before reading: later acknowledgements must not be compared with this read.
        before = known.told
        if self._touch_on_read:
            await self._touch(key, deadline)
        if last == 0:
            return []
        rows: Sequence[Row] | None = None
        if self._replica is not None:
            rows = await self._replica_rows(self._replica, deadline, key, after, last)
        if rows is None:
            rows = await self._fetch(self._pool, deadline, schema.HISTORY, key, after, last)
        told = known.still(before)
        if told and not rows:
            rows = await self._lost_whole(key, deadline)
        if rows and rows[0][0] is not None and rows[0][0] < told:
            told = await self._still(key, known, before, rows[0][0])
        if rows and rows[0][1] == schema.MARKED:
            return await self._history_marked(key, after, last, told, deadline)
        stored: list[Stored] = []
        if not await finished(placing(stored, rows, after, last, told), deadline):
            raise too_long(self._timeout_s)
        return stored

    async def _erase(self, session: str, key: bytes, expect: int | None) -> Erasure:
        if self._witness is not None:
            await self._witness.erase(session)
        connection = self._pool.take() or await self._pool.acquire(time.monotonic() + self._timeout_s)
        try:
            with self._known.erasing(key):
                trace = trace_of(self._identity, key)
                number = await erase_rows(connection, key, expect, trace, self._timeout_s)
            self._abandoned_waits.check(connection)
            erased = await rewrite_files(connection, number, self._timeout_s)
            self._abandoned_waits.disregard(connection)
        except BaseException as error:
            self._pool.discard(connection)
            if isinstance(error, DRIVER_ERRORS):
                raise OutcomeUnknown(f"the session may not be erased from every file ({error})") from error
            raise
        self._pool.release(connection)
        return erasure(
            session, *erased, None if self._witness is None else await self._witness.erase(session)
        )

    async def close(self) -> None:
        """In a fork this does nothing: the connections belong to the parent."""
        if self._closed or not self._owner.may_close():
            return
        self._closed = True
        await to_its_end(self._close())

    async def _close(self) -> None:
        await self._batcher.drain()
        if self._witness is not None:
            await self._witness.close()
        await self._pool.close()
        if self._replica is not None:
            await self._replica.close()

    async def state(self, session: str) -> SessionState:
        """Whether the session is live, expired, forgotten, or never existed."""
        key = session_key(session)
        known = self._known.of(key)
        told = known.told
        rows = await self._read(schema.SESSION, key)
        last, *rest = rows[0] if rows else (0,)
        if last is None:
            raise row_changed()
        last = max(last, await self._still(key, known, told, last))
        if not rows:
            return SessionState.LIVE if last else SessionState.ABSENT  # live but lost: reads show that
        return state_of(last, *rest)

    async def sweep(self) -> int:
        """Frees what expired sessions still occupy; returns how many were freed."""
        with advising("sweep again"):
            return await self._sweep()

    async def _sweep(self) -> int:
        expired, above = 0, 0
        while rows := await self._write(schema.EXPIRE, (above,)):
            expired += len(rows)
            above = max(row[0] for row in rows)
        above = 0
        while rows := await self._read(schema.FREEABLE, above):
            for (session_id,) in rows:
                while (await self._write(schema.FREE, (session_id, schema.ROWS_FREED_MAX)))[0][0]:
                    pass
            above = rows[-1][0]
        await self._write(schema.DROP_TRACES, (TRACE_LIFE, TRACES_MAX))
        return expired

    # ---- appending

    async def _run(self, appends: list[Append]) -> list[Receipt | Exception]:
        if len(appends) == 1:
            return [await self._append_one(appends[0])]
        return await self._append_many(appends, time.monotonic() + self._timeout_s)

    async def _append_one(self, append: Append) -> Receipt:
        deadline = time.monotonic() + self._timeout_s
        known = self._known.of(append.key)
        if known.last:  # it is there, unless it was lost
            receipt = await self._append_plainly(append, known, deadline)
            if receipt is not None:
                return receipt
        (result,) = await self._append_many([append], deadline)
        if isinstance(result, Exception):
            raise result
        return result

    async def _append_plainly(self, append: Append, known: Known, deadline: float) -> Receipt | None:
        """The receipt, or None if nothing was written because the case is not plain."""
        reached, options = self._reach, self._options
        statement, arguments = lone_statement(
            append, known, options.ttl, self._ttl_kept, reached, self._turns_max
        )
        try:
            rows = await self._write(statement, arguments, deadline)
        except NotWritten as error:
            if isinstance(error.__cause__, asyncpg.UniqueViolationError):
                return None  # another append with this turn id was faster
            raise
        if not rows:
            known.row = None
            return None
        last, *seen = rows[0]
        if seen and seen[-1] is not None and options.ttl is None:
            known.row = tuple(seen)
        first = last - len(append.records) + 1
        return Receipt(append.session, first, last, reached.durability, reached.replicas)

    async def _append_many(self, appends: list[Append], deadline: float) -> list[Receipt | Exception]:
        """Each append's receipt or error, in the order given."""
        results: list[Receipt | Exception] = [NotWritten("not sent")] * len(appends)
        # Every writer locks sessions in this order, so that no two wait for each other.
        order = sorted(range(len(appends)), key=lambda place: appends[place].key)
        for portion in _portions(appends, order):
            places = await self._append_together(appends, portion, results, deadline)
            if not places:
                continue
            left = [appends[place] for place in places]
            try:
                outcomes: Sequence[Receipt | Exception] = await self._send(left, deadline)
            except RecollectError as error:
                if len(left) > 1 and isinstance(error, NotWritten) and error.__cause__ is not None:
                    # Perhaps only one of them caused the rollback: sent one by one, only that one fails.
                    outcomes = [(await self._append_many([append], deadline))[0] for append in left]
                else:
                    outcomes = [error] * len(left)
            for place, outcome in zip(places, outcomes, strict=True):
                results[place] = outcome
        return results

    async def _append_together(
        self, appends: list[Append], places: list[int], results: list[Receipt | Exception], deadline: float
    ) -> list[int]:
        """Stores the plain appends of these places in one statement; returns the places that are left."""
        batch = Batch.of(appends, places, self._known)
        if batch is None:
            return places
        reached = self._reach
        statement, arguments = batch.statement(self._options.ttl, self._ttl_kept, reached, self._turns_max)
        try:
            [[found, lasts, *rows]] = await self._write(statement, arguments, deadline)
        except RecollectError as error:
            if isinstance(error, NotWritten) and isinstance(error.__cause__, asyncpg.PostgresError):
                return places  # such as another append with the same turn id, which was faster
            done = set(batch.places())
            for place in done:
                results[place] = error
        else:
            if self._options.ttl is None:
                batch.note_rows(found or (), zip(*rows, strict=True) if found else ())
            receipts = dict(batch.receipts(found or (), lasts or (), reached))
            done = set(receipts)
            for place, receipt in receipts.items():
                results[place] = receipt
        return [place for place in places if place not in done]

    async def _send(self, appends: list[Append], deadline: float) -> list[Receipt | Exception]:
        keys = [append.key for append in appends]
        outcomes, reached = await self._changed(schema.APPEND, self._arguments(appends), keys, deadline)
        return [
            self._met(append.key, outcome) if isinstance(outcome, Exception) else outcome
            for append, outcome in zip(appends, outcomes_of(appends, outcomes, reached), strict=True)
        ]

    def _arguments(self, appends: list[Append]) -> tuple[Any, ...]:
        return (
            [append.key for append in appends],
            [len(append.records) for append in appends],
            [record for append in appends for record in append.records],
            [append.turn for append in appends],
            [append.fingerprint for append in appends],
            [expected(append.expect) for append in appends],
            self._options.ttl,
            self._ttl_kept,
            self._options.turns_kept,
        )

    async def _reach_again(self, deadline: float) -> None:
        """The server's settings changed under the open store: receipts must claim what the new settings give."""
        try:
            connection = await self._pool.acquire(deadline)
        except (EngineUnavailable, CredentialsRefused) as error:
            raise write_error(error) from error
        try:
            self._reach = reach(await read_settings(connection, remaining_s(deadline)), self._options)
        except DurabilityUnavailable as error:
            raise NotWritten(f"{error}; nothing was written") from error
        except DRIVER_ERRORS as error:
            raise NotWritten(f"PostgreSQL's settings changed and cannot be read: {error}") from error
        finally:
            self._pool.release(connection)
        log.warning("PostgreSQL's durability settings changed: %s", self.notice or "nothing can be lost now")

    # ---- reading

    async def _replica_rows(
        self, replica: PostgresPool, deadline: float, key: bytes, after: int, last: int
    ) -> Sequence[asyncpg.Record] | None:
        """The rows from the replica; empty if the primary has none; None if the replica cannot be trusted."""
        known = await self._fetch(self._pool, deadline, schema.SESSION, key)
        if not known:
            return ()
        known_last, floor, _, expired = known[0]
        if known_last is None:
            raise row_changed()
        if expired or floor == known_last:
            return ()
        try:
            midway = time.monotonic() + remaining_s(deadline) / 2  # leaves the primary time to serve
            rows = await self._fetch(replica, midway, schema.HISTORY_REPLICA, key, after, last, known_last)
        except RecollectError as error:
            log.info("the read replica does not serve (%s); reading from the primary", error)
            return None
        return rows or None

    async def _lost_whole(self, key: bytes, deadline: float) -> list[Row]:
        """A row without messages, if the session has not expired but was lost with the engine's last writes."""
        return [] if await self._fetch(self._pool, deadline, schema.SESSION, key) else [(0, 0, None, None)]

    async def _history_marked(
        self, key: bytes, after: int, last: int, told: int, deadline: float
    ) -> list[Stored]:
        """For a session with tombstones, from the primary: enough rows to hold `last` messages."""
        rows_max = records_for(last)
        rows = await self._fetch(self._pool, deadline, schema.HISTORY_MARKED, key, after, rows_max)
        stored: list[Stored] = []
        if not await finished(placing_marked(stored, rows, after, rows_max, told), deadline):
            raise too_long(self._timeout_s)
        return newest(stored, last)

    async def _touch(self, key: bytes, deadline: float) -> None:
        """Restarts the time to live, in a separate statement: an update sees newer rows than its query's snapshot."""
        try:
            await self._write(schema.TOUCH, (key, self._options.ttl), deadline)
        except NotWritten as error:
            raise EngineUnavailable(f"the time to live was not restarted: {error}") from error
        except OutcomeUnknown as error:
            raise EngineUnavailable(f"the time to live may not be restarted: {error.reason}") from error

    # ---- statements

    async def _prepare(self, connection: Connection) -> None:
        """A new connection may lead to a different engine than before: a wiped volume, a swapped host."""
        version = await schema.read_version(connection, self._timeout_s)
        found = None if version is None else version.identity
        if found != self._identity:
            raise replaced(self._identity, found)
        await check_server(connection, self._reach.commit_mode, self._timeout_s)
        self._abandoned_waits.listen(connection)

    async def _prepare_replica(self, connection: Connection) -> None:
        version = await schema.read_version(connection, self._timeout_s)
        if version is None or version.identity != self._identity:
            raise EngineUnavailable(
                "read_url leads to another store, or to a replica that has not received this one yet"
            )

    async def _read(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        return await self._fetch(self._pool, time.monotonic() + self._timeout_s, statement, *arguments)

    async def _fetch(
        self, pool: PostgresPool, deadline: float, statement: str, *arguments: Any
    ) -> list[asyncpg.Record]:
        """Rows of a read; tried again on a fresh connection if the pooled one had ended."""
        for attempt in (1, 2):
            connection = pool.take() or await pool.acquire(deadline)
            try:
                rows = await connection.fetch(statement, *arguments, timeout=remaining_s(deadline))
            except (Exception, asyncio.CancelledError) as error:
                ended = connection.is_closed()
                if isinstance(error, asyncpg.PostgresError):
                    pool.release(connection)  # drops it if it has ended
                else:
                    pool.discard(connection)
                if isinstance(error, asyncio.CancelledError):
                    raise
                if ended and attempt == 1:
                    continue
                raise read_error(error) from error
            pool.release(connection)
            return rows
        raise AssertionError("unreachable")

    async def _write(
        self, statement: str, arguments: tuple[Any, ...], deadline: float | None = None
    ) -> list[asyncpg.Record]:
        """Rows of a write, sent once."""
        pool = self._pool
        if deadline is None:
            deadline = time.monotonic() + self._timeout_s
        try:
            connection = pool.take() or await pool.acquire(deadline)
        except (EngineUnavailable, CredentialsRefused) as error:
            raise write_error(error) from error
        try:
            rows = await connection.fetch(statement, *arguments, timeout=remaining_s(deadline))
        except asyncpg.PostgresError as error:
            pool.release(connection)  # drops it if it has ended
            raise write_error(error) from error
        except BaseException as error:
            pool.discard(connection)
            if isinstance(error, Exception):
                raise write_error(error) from error
            raise
        pool.release(connection)
        self._abandoned_waits.check(connection)
        return rows


def _portions(appends: list[Append], order: list[int]) -> list[list[int]]:
    """Indexes of the appends, in order, split where a statement would grow too large."""
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
