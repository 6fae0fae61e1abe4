"""Memory in one SQLite file: the embedded default.

How it writes. Appends that arrive together share one transaction, and so one fsync; `SqliteTransactions` decides where
and when. A task that appends alone needs only one statement (`_append_alone`).

How it orders. A message's sequence is one more than the highest of its session, taken inside the write transaction
(``BEGIN IMMEDIATE``), so any number of processes may append. `floor` is the last sequence assigned before a `forget` or
an expiry: sequences go on from there, and a first message above ``floor + 1`` shows that something is missing.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recollect.appending import Append, Said, checked_append, checked_window, session_key
from recollect.aside import aside
from recollect.erasure import Erasure, erasure
from recollect.errors import (
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    Unreadable,
    advising,
)
from recollect.store import Options, Receipt, SessionState, Stored
from recollect.stores.sqlite.changes import INSERT, StoreJob, room, state_of
from recollect.stores.sqlite.erasing import erase_from_file
from recollect.stores.sqlite.file import (
    ChosenPolicy,
    any_text,
    choose_policy,
    is_locked,
    opening,
    parse_url,
    prepare_file,
    until,
)
from recollect.stores.sqlite.moving import SqliteMoving
from recollect.stores.sqlite.rows import (
    SEQUENCE_MAX,
    expired_sessions,
    free,
    freeable,
    history_rows,
    seal,
    session_row,
)
from recollect.stores.sqlite.transactions import INLINE_ROWS_MAX, commit_failed
from recollect.witness import Witness

log = logging.getLogger("recollect")

KNOWN_MAX = 10_000
"""How many sessions' counters are kept in memory."""
KNOWN_KEY_BYTES_MAX = 500
"""Sessions with longer ids are looked up each time: thousands of them would fill the memory."""

_INSERT_ALONE = """
INSERT INTO recollect_messages (place, record, written)
SELECT ?, ?, ? FROM recollect_sessions WHERE id = ? AND expires_at IS NULL AND floor < ?"""


class SqliteStore(SqliteMoving):
    """See `recollect.store.Store` for the contract. Made by `open_store("sqlite:///path")`."""

    _CALLED = "store"
    _THREADS = "recollect-sqlite"

    def __init__(self, path: Path, policy: ChosenPolicy, options: Options, identity: str) -> None:
        super().__init__(path, policy, options)
        self._known_version = -1
        self.identity = identity

    @classmethod
    async def open(cls, url: str, options: Options) -> "SqliteStore":
        """Opens the memory at the address and checks that what was asked for can be kept; `open_store` calls this."""
        path, asked = parse_url(url)
        store = await aside(_open_file, cls, path, asked, options)
        store._owner.take_loop()
        try:
            if options.witness is not None:
                store._witness = await Witness.check(options, store.identity, store.position)
        except BaseException:
            await store.close()
            raise
        if store.notice:
            log.warning("%s: %s", path, store.notice)
        return store

    # ---- the contract

    async def append(
        self, session: str, messages: Sequence[Said], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """Stores the messages as one turn, whole or not at all, and says what the write survives."""
        append = checked_append(session, messages, turn, expect)
        self._check_open(NotWritten)
        sent_at = time.monotonic()
        receipt = self._append_now(append) if self._batcher.alone() else None
        if receipt is None:
            receipt = await self._batcher.submit(append)
        elif self._batcher.yield_due():
            await asyncio.sleep(0)
        return self._noted(receipt, sent_at)

    async def history(
        self, session: str, *, last: int | None = None, after: int | None = None
    ) -> list[Stored]:
        """The session's live messages in order: all, the `last` n, or those with a sequence above `after`."""
        last, after = checked_window(last, after)
        key = session_key(session)
        deadline = time.monotonic() + self._timeout_s
        if self._options.refresh == "read" and self._ttl_s is not None:
            await self._restart_life(key)
        stored = None
        if self._policy.journal == "wal":
            stored = await self._read(
                lambda reader: history_rows(reader, key, last, after, deadline, INLINE_ROWS_MAX),
                inline=True,
                deadline=deadline,
            )
        if stored is None:
            stored = await self._read(
                lambda reader: history_rows(reader, key, last, after, deadline), deadline=deadline
            )
        assert stored is not None  # without a limit
        return stored

    async def _restart_life(self, key: bytes) -> None:
        try:
            await self._submit(lambda connection: self._refresh(connection, key))
        except OutcomeUnknown as error:
            raise EngineUnavailable(f"the time to live may not be restarted: {error.reason}") from error

    async def _erase(self, session: str, key: bytes, expect: int | None) -> Erasure:
        self._check_open(NotWritten)
        self._check(self._guard.harm_before_read())
        if self._witness is not None:
            await self._witness.erase(session)
        erased = await aside(erase_from_file, self._path, key, expect, self._policy, self._timeout_s)
        self._known.pop(key, None)
        self._check_open(NotWritten)  # it may have been closed meanwhile, and its guard with it
        self._check(self._guard.harm_before_read())
        return erasure(
            session, *erased, None if self._witness is None else await self._witness.erase(session)
        )

    async def state(self, session: str) -> SessionState:
        """Whether the session is live, expired, forgotten, or never existed."""
        key = session_key(session)
        found = await self._read(lambda connection: session_row(connection, key), inline=True)
        return state_of(found)

    async def sweep(self) -> int:
        """Frees what expired sessions still occupy; returns how many were freed."""
        with advising("sweep again"):
            return await self._sweep()

    async def _sweep(self) -> int:
        freed = above = 0
        while expired := await self._read(partial(expired_sessions, above=above)):
            for _, key in expired:
                freed += await self._submit(partial(self._sweep_one, key=key))
            above = expired[-1][0]
        above = 0
        while rows := await self._read(partial(freeable, above=above)):
            for (session,) in rows:
                while await self._submit(partial(free, session=session)):
                    pass
            above = rows[-1][0]
        return freed

    # ---- inside the write transaction

    def _append(self, connection: sqlite3.Connection, append: Append) -> Receipt:
        found = self._known.get(append.key) or session_row(connection, append.key)
        if append.turn is not None and found is not None:
            earlier = self._earlier(connection, found, append)
            if earlier is not None:
                return earlier
        last_seen = 0 if found is None else found.last
        if append.expect is not None and append.expect != last_seen:
            raise append.conflict(last_seen)
        first = room(append, found)
        last = last_seen + len(append.records)
        if found is None or found.expires_at is not None or self._ttl_s is not None:
            found = self._begin_or_renew(connection, append.key, found)
        now = time.time()
        for sequence, record in enumerate(append.records, first):
            connection.execute(INSERT, (found.id << 32 | sequence, record, now))
        if append.turn is not None:
            self._remember_turn(connection, found.id, append, first, last)
        found.newest = last
        if len(append.key) <= KNOWN_KEY_BYTES_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[append.key] = found
        return Receipt(append.session, first, last, self._policy.durability)

    def _append_alone(self, append: Append) -> Receipt | None:
        """Stores one message without turn, `expect` or expiry in a single statement; None if that is not possible.

        The place comes from what this store knows. If another process has written since, the place is taken or the
        session's row no longer matches, and the ordinary transaction, which reads first, has to do it.
        """
        known = self._known.get(append.key)
        if known is None or len(append.records) != 1 or append.turn is not None or append.expect is not None:
            return None
        sequence = known.last + 1
        if self._ttl_s is not None or sequence > SEQUENCE_MAX:
            return None
        started = time.monotonic()
        self._check(self._guard.harm_before_write())
        try:
            with self._writing:
                cursor = self._writer.execute(
                    _INSERT_ALONE,
                    (known.id << 32 | sequence, append.records[0], time.time(), known.id, sequence),
                )
        except sqlite3.IntegrityError:
            return None
        except sqlite3.Error as error:
            if is_locked(error):
                return None
            self._roll_back(self._writer)
            raise commit_failed(self._path, error) from error
        if cursor.rowcount != 1:
            return None
        self._commit_s = 0.8 * self._commit_s + 0.2 * (time.monotonic() - started)
        known.newest = sequence
        self._check(self._guard.harm_after_commit())
        return Receipt(append.session, sequence, sequence, self._policy.durability)

    def _refresh(self, connection: sqlite3.Connection, key: bytes) -> None:
        assert self._ttl_s is not None
        now = time.time()
        self._known.pop(key, None)
        found = session_row(connection, key)
        if found is not None and found.expires_at is not None and not found.expired(now):
            connection.execute(
                "UPDATE recollect_sessions SET expires_at = ? WHERE id = ?", (now + self._ttl_s, found.id)
            )
            seal(connection, found.id)

    def _sweep_one(self, connection: sqlite3.Connection, key: bytes) -> int:
        found = session_row(connection, key)
        if found is None or not found.expired(time.time()):  # renewed since it was listed
            return 0
        self._end(connection, key, "expired")
        return 1

    # ---- running transactions

    def _append_now(self, append: Append) -> Receipt | None:
        """The append of a task that is alone, with few and simple calls: after an fsync, the CPU caches are cold."""
        if not self._inline():
            return None
        receipt = self._append_alone(append)
        if receipt is not None:
            return receipt
        results = self._commit([append], wait_s=0.0)
        if results is None:
            return None
        outcome: Receipt | Exception = results[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _outcome(self, job: StoreJob, connection: sqlite3.Connection) -> Any:
        try:
            return self._append(connection, job) if isinstance(job, Append) else job(connection)
        except Unreadable as error:
            return NotWritten(f"{error}; nothing was written")
        except RecollectError as error:
            return error

    def _begun(self, connection: sqlite3.Connection) -> None:
        """Forgets what it knew about the sessions if somebody else has written since."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._known_version:
            self._known.clear()
            self._known_version = version

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._known.clear()
        super()._roll_back(connection)

    async def _release(self) -> None:
        if self._witness is not None:
            await self._witness.close()
        await super()._release()

    def _connect(self) -> sqlite3.Connection:
        connection = super()._connect()
        connection.text_factory = any_text
        return connection


# ---- opening


def _open_file(kind: type[SqliteStore], path: Path, asked: str | None, options: Options) -> SqliteStore:
    policy = choose_policy(asked, options, path)
    deadline = time.monotonic() + options.timeout_s
    opened: list[SqliteStore] = []

    def attempt() -> None:
        identity = prepare_file(path, policy, options.file_mode, deadline)
        opened.append(kind(path, policy, options, identity))

    with opening(path):
        # Any step may hit a lock: another process may be recovering, or changing the journal mode.
        if not until(deadline, attempt):
            raise EngineUnavailable(f"{path} was locked by another process for {options.timeout_s:g} s")
    return opened[0]
