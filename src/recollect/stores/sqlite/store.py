"""Memory in one SQLite file: the embedded default.

How it writes. Appends that arrive together share one transaction, and so one fsync: `SqliteTransactions` says where and
when. A task that appends alone gets by with one statement (`_append_alone`).

How it orders. A message's sequence is one more than the highest of its session, taken inside the write transaction
(``BEGIN IMMEDIATE``), so any number of processes may append. `floor` is the last sequence given before a `forget` or an
expiry: sequences go on from there, and a first message above ``floor + 1`` shows that something is missing.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from recollect.appending import Append, checked_append, checked_window, listed, session_key
from recollect.erasure import Erasure, erasure
from recollect.errors import EngineUnavailable, NotWritten, RecollectError, Refused, Unreadable, shorten
from recollect.message import Damaged, Message, decode_all
from recollect.slices import SLICE
from recollect.store import Options, Receipt, SessionState, Stored
from recollect.stores.sqlite.erasing import erase_from_file
from recollect.stores.sqlite.file import (
    CHECKPOINT_PAGES,
    ChosenPolicy,
    any_text,
    choose_policy,
    is_locked,
    opening,
    parse_url,
    prepare_file,
    until,
)
from recollect.stores.sqlite.transactions import INLINE_ROWS_MAX, SqliteTransactions, commit_failed
from recollect.witness import Witness

log = logging.getLogger("recollect")

ROWS_FREED_MAX = 2_000
"""Rows deleted in one transaction: a few milliseconds."""

KNOWN_MAX = 10_000
"""Sessions whose counters are kept at hand."""
KNOWN_KEY_BYTES_MAX = 500
"""Sessions with longer ids are looked up each time: thousands of them would fill the memory."""

SEQUENCE_MAX = 2**32 - 1

_SESSION = f"""
SELECT id, floor, ended, expires_at, (
    SELECT place & {SEQUENCE_MAX} FROM recollect_messages
    WHERE place BETWEEN (s.id << 32) + s.floor + 1 AND (s.id << 32) + {SEQUENCE_MAX} ORDER BY place DESC LIMIT 1)
FROM recollect_sessions s WHERE key = ?"""

_INSERT = "INSERT INTO recollect_messages (place, record) VALUES (?, ?)"

_INSERT_ALONE = """
INSERT INTO recollect_messages (place, record)
SELECT ?, ? FROM recollect_sessions WHERE id = ? AND expires_at IS NULL AND floor < ?"""

_TURN = """
SELECT first, last, fingerprint FROM recollect_turns LEFT JOIN recollect_fingerprints USING (session, first)
WHERE session = ? AND turn = ?"""
"""Turns that were written by a release without fingerprints have none."""

_RECORDS = "SELECT record FROM recollect_messages WHERE place BETWEEN ? AND ? ORDER BY place"
_PLACES = "SELECT place FROM recollect_messages WHERE place BETWEEN ? AND ? ORDER BY place"

_PRUNE_FINGERPRINTS = """
DELETE FROM recollect_fingerprints WHERE session = ?1 AND first < (
    SELECT first FROM recollect_turns WHERE session = ?1 ORDER BY number LIMIT 1)"""

_LIVE_SESSIONS = f"""
SELECT id, key FROM recollect_sessions s
WHERE id > ? AND (expires_at IS NULL OR expires_at > ?)
AND EXISTS (
    SELECT 1 FROM recollect_messages
    WHERE place BETWEEN (s.id << 32) + s.floor + 1 AND (s.id << 32) + {SEQUENCE_MAX})
ORDER BY id LIMIT 500"""

_FREE = """
DELETE FROM recollect_messages WHERE place IN (
    SELECT place FROM recollect_messages WHERE place BETWEEN ?1 << 32 AND (?1 << 32) + (
        SELECT floor FROM recollect_sessions WHERE id = ?1)
    ORDER BY place LIMIT ?2)"""

_FREEABLE = """
SELECT id FROM recollect_sessions s WHERE id > ? AND EXISTS (
    SELECT 1 FROM recollect_messages WHERE place BETWEEN s.id << 32 AND (s.id << 32) + s.floor)
ORDER BY id LIMIT 500"""

StoreJob = Append | Callable[[sqlite3.Connection], Any]


class _Session(msgspec.Struct):
    id: int
    floor: int
    ended: str | None
    expires_at: float | None
    newest: int | None

    @property
    def last(self) -> int:
        return self.floor if self.newest is None else self.newest

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now


class SqliteStore(SqliteTransactions[StoreJob]):
    """See `recollect.store.Store` for the contract. Made by `open_store("sqlite:///path")`."""

    _CALLED = "store"
    _THREADS = "recollect-sqlite"

    def __init__(self, path: Path, policy: ChosenPolicy, options: Options, identity: str) -> None:
        super().__init__(path, policy, options)
        self._options = options
        self._ttl_s = None if options.ttl is None else options.ttl.total_seconds()
        self._witness: Witness | None = None
        # Sessions as this store's last appends left them; valid while `data_version` says nobody else wrote.
        self._known: dict[bytes, _Session] = {}
        self._known_version = -1
        self.identity = identity

    @classmethod
    async def open(cls, url: str, options: Options) -> "SqliteStore":
        path, asked = parse_url(url)
        store = await asyncio.to_thread(_open_file, cls, path, asked, options)
        try:
            if options.witness is not None:
                store._witness = await Witness.check(options, store.identity, store._last_sequence)
        except BaseException:
            await store.close()
            raise
        if store.notice:
            log.warning("%s: %s", path, store.notice)
        return store

    # ---- the contract

    async def append(
        self, session: str, messages: Sequence[Message], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        append = checked_append(session, messages, turn, expect)
        self._check_open(NotWritten)
        receipt = self._append_now(append) if self._batcher.alone() else None
        if receipt is None:
            receipt = await self._batcher.submit(append)
        elif self._batcher.yield_due():
            await asyncio.sleep(0)
        if self._witness is not None:
            self._witness.note(session, receipt.last)
        return receipt

    async def history(
        self, session: str, *, last: int | None = None, after: int | None = None
    ) -> list[Stored]:
        last, after = checked_window(last, after)
        key = session_key(session)
        deadline = time.monotonic() + self._timeout_s
        if self._options.refresh == "read" and self._ttl_s is not None:
            await self._submit(lambda connection: self._refresh(connection, key))
        query = partial(_history, key=key, last=last, after=after, deadline=deadline)
        inline = last is not None and last <= INLINE_ROWS_MAX
        return await self._read(query, inline=inline, deadline=deadline)

    async def forget(self, session: str, *, erase: bool = False) -> Erasure | None:
        key = session_key(session)
        if erase:
            return await self._erase(session, key)
        deadline = time.monotonic() + self._timeout_s / 2
        unfreed = await self._submit(lambda connection: self._end(connection, key, "forgotten"))
        try:
            while unfreed is not None:
                if time.monotonic() > deadline:
                    raise NotWritten("it was too large to free at once")
                if not await self._submit(partial(_free, session=unfreed)):
                    unfreed = None
        except RecollectError as error:  # it is forgotten anyway: nothing shows what is left
            log.warning("a forgotten session still occupies room (%s); sweep() frees it", error)
        return None

    async def _erase(self, session: str, key: bytes) -> Erasure:
        self._check_open(NotWritten)
        self._check(self._guard.harm_before_read())
        erased = await asyncio.to_thread(erase_from_file, self._path, key, self._policy, self._timeout_s)
        self._known.pop(key, None)
        self._check(self._guard.harm_before_read())
        return erasure(
            session, *erased, None if self._witness is None else await self._witness.erase(session)
        )

    async def state(self, session: str) -> SessionState:
        key = session_key(session)
        found = await self._read(lambda connection: _session(connection, key), inline=True)
        if found is None:
            return SessionState.ABSENT
        if found.newest is not None:
            return SessionState.EXPIRED if found.expired(time.time()) else SessionState.LIVE
        return SessionState.EXPIRED if found.ended == "expired" else SessionState.FORGOTTEN

    async def sweep(self) -> int:
        freed = 0
        while keys := await self._read(_expired_keys, inline=False):
            for key in keys:
                freed += await self._submit(partial(self._sweep_one, key=key))
        above = 0
        while rows := await self._read(partial(_freeable, above=above)):
            for (session,) in rows:
                while await self._submit(partial(_free, session=session)):
                    pass
            above = rows[-1][0]
        return freed

    async def sessions(self) -> AsyncIterator[str]:
        above = 0
        while rows := await self._read(partial(_live_sessions, above=above), inline=False):
            for session in listed(key for _, key in rows):
                yield session
            above = rows[-1][0]

    # ---- inside the write transaction

    def _append(self, connection: sqlite3.Connection, append: Append) -> Receipt:
        found = self._known.get(append.key) or _session(connection, append.key)
        if append.turn is not None and found is not None:
            earlier = connection.execute(_TURN, (found.id, append.turn)).fetchone()
            if earlier is not None:
                if not (type(earlier[0]) is type(earlier[1]) is int):
                    raise Unreadable(
                        f"the turn's row was changed by something other than recollect: {earlier[:2]}"
                    )
                if earlier[2] is not None and earlier[2] != append.fingerprint:
                    raise append.reused()
                # The first write may not be synced yet, if another process runs with less durability: a commit that
                # writes syncs everything before it. SQLite skips an update that changes nothing, so this counts.
                connection.execute(
                    "UPDATE recollect_sessions SET repeats = repeats + 1 WHERE id = ?", (found.id,)
                )
                return Receipt(append.session, earlier[0], earlier[1], self._policy.durability)
        last_seen = 0 if found is None else found.last
        if append.expect is not None and append.expect != last_seen:
            raise append.conflict(last_seen)
        first, last = last_seen + 1, last_seen + len(append.records)
        if last > SEQUENCE_MAX:
            raise Refused(f"session {shorten(append.session)}: full after {SEQUENCE_MAX:,} messages")
        if found is None or found.expires_at is not None or self._ttl_s is not None:
            found = self._begin_or_renew(connection, append.key, found)
        for sequence, record in enumerate(append.records, first):
            connection.execute(_INSERT, (found.id << 32 | sequence, record))
        if append.turn is not None:
            self._remember_turn(connection, found.id, append, first, last)
        found.newest = last
        if len(append.key) <= KNOWN_KEY_BYTES_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[append.key] = found
        return Receipt(append.session, first, last, self._policy.durability)

    def _append_alone(self, append: Append) -> Receipt | None:
        """One message without turn, `expect` or expiry, as the one statement it takes; None where that cannot be.

        The place comes from what this store knows. If another process was there since, the place is taken, or the
        session's row says otherwise, and the transaction that looks first has to do it.
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
            cursor = self._writer.execute(
                _INSERT_ALONE, (known.id << 32 | sequence, append.records[0], known.id, sequence)
            )
        except sqlite3.IntegrityError:
            return None
        except sqlite3.Error as error:
            if is_locked(error):
                return None
            self._roll_back()
            raise commit_failed(self._path, error) from error
        if cursor.rowcount != 1:
            return None
        self._commit_s = 0.8 * self._commit_s + 0.2 * (time.monotonic() - started)
        known.newest = sequence
        self._check(self._guard.harm_after_commit())
        return Receipt(append.session, sequence, sequence, self._policy.durability)

    def _begin_or_renew(self, connection: sqlite3.Connection, key: bytes, found: _Session | None) -> _Session:
        """The session as the append finds it then: created if new, emptied if expired, its time to live renewed."""
        now = time.time()
        expires_at = None if self._ttl_s is None else now + self._ttl_s
        if found is None:
            row = connection.execute(
                "INSERT INTO recollect_sessions (key, expires_at) VALUES (?, ?)", (key, expires_at)
            ).lastrowid
            assert row is not None
            return _Session(row, 0, None, expires_at, None)
        if found.expired(now):
            self._end(connection, key, "expired")
        elif self._ttl_s is not None and self._options.refresh == "never" and found.newest is not None:
            expires_at = found.expires_at if found.expires_at is not None else expires_at
        connection.execute(
            "UPDATE recollect_sessions SET expires_at = ? WHERE id = ?", (expires_at, found.id)
        )
        found.ended, found.expires_at = None, expires_at
        return found

    def _remember_turn(
        self, connection: sqlite3.Connection, session: int, append: Append, first: int, last: int
    ) -> None:
        (number,) = connection.execute(
            "SELECT coalesce(max(number), 0) + 1 FROM recollect_turns WHERE session = ?", (session,)
        ).fetchone()
        connection.execute(
            "INSERT INTO recollect_turns VALUES (?, ?, ?, ?, ?)", (session, number, append.turn, first, last)
        )
        connection.execute(
            "INSERT OR REPLACE INTO recollect_fingerprints VALUES (?, ?, ?)",
            (session, first, append.fingerprint),
        )
        pruned = connection.execute(
            "DELETE FROM recollect_turns WHERE session = ? AND number <= ?",
            (session, number - self._options.turns_kept),
        )
        if pruned.rowcount:
            connection.execute(_PRUNE_FINGERPRINTS, (session,))

    def _refresh(self, connection: sqlite3.Connection, key: bytes) -> None:
        assert self._ttl_s is not None
        now = time.time()
        self._known.pop(key, None)
        connection.execute(
            "UPDATE recollect_sessions SET expires_at = ? WHERE key = ? AND expires_at > ?",
            (now + self._ttl_s, key, now),
        )

    def _end(self, connection: sqlite3.Connection, key: bytes, why: str) -> int | None:
        """Ends the session, whose messages are not shown from then on, and removes them; what they were numbered stays
        known. Gives the session's number if there are more of them than one transaction removes."""
        self._known.pop(key, None)
        found = _session(connection, key)
        if found is None:
            return None
        connection.execute(
            "UPDATE recollect_sessions SET floor = ?, ended = ?, expires_at = NULL WHERE id = ?",
            (found.last, why, found.id),
        )
        return found.id if _free(connection, found.id) else None

    def _sweep_one(self, connection: sqlite3.Connection, key: bytes) -> int:
        found = _session(connection, key)
        if found is None or not found.expired(time.time()):  # renewed since it was listed
            return 0
        self._end(connection, key, "expired")
        return 1

    # ---- running transactions

    async def _submit(self, job: StoreJob) -> Any:
        self._check_open(NotWritten)
        return await self._batcher.submit(job)

    def _append_now(self, append: Append) -> Receipt | None:
        """The append of a task that is alone, by few and plain calls: after an fsync, the caches are cold."""
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
        """Forgets what it knew of the sessions if somebody else wrote since."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._known_version:
            self._known.clear()
            self._known_version = version

    def _roll_back(self) -> None:
        self._known.clear()
        super()._roll_back()

    async def _release(self) -> None:
        if self._witness is not None:
            await self._witness.close()
        await super()._release()

    async def _last_sequence(self, session: str) -> int:
        key = session_key(session)
        found = await self._read(lambda connection: _session(connection, key), inline=True)
        return 0 if found is None else found.last

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        connection.execute(f"PRAGMA synchronous = {self._policy.synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.text_factory = any_text
        return connection


# ---- statements


def _session(connection: sqlite3.Connection, key: bytes) -> _Session | None:
    row = connection.execute(_SESSION, (key,)).fetchone()
    if row is None:
        return None
    found = _Session(*row)
    if (
        type(found.floor) is not int
        or not isinstance(found.ended, str | None)
        or not isinstance(found.expires_at, int | float | None)
    ):  # SQLite keeps in a column whatever is put there
        raise Unreadable(f"the session's row was changed by something other than recollect: {str(row)[:200]}")
    return found


def _free(connection: sqlite3.Connection, session: int) -> bool:
    """Removes some of the messages that are not shown any more; whether there may be more of them."""
    return connection.execute(_FREE, (session, ROWS_FREED_MAX)).rowcount == ROWS_FREED_MAX


def _freeable(connection: sqlite3.Connection, above: int) -> list[tuple[int]]:
    return connection.execute(_FREEABLE, (above,)).fetchall()


def _history(
    connection: sqlite3.Connection, key: bytes, last: int | None, after: int | None, deadline: float
) -> list[Stored]:
    """The window's messages in their places; where rows are missing in between, a `Damaged` item says so."""
    try:
        connection.execute("BEGIN")  # one snapshot for all that follows
        found = _session(connection, key)
        if found is None or found.newest is None or found.expired(time.time()):
            return []
        above = max(found.floor, after or 0, 0 if last is None else found.newest - last)
        if above >= found.newest:
            return []
        # Bounds, not a limit: if as many rows come as there are places, none is missing, and no row has to name its.
        places = (found.id << 32) + above + 1, (found.id << 32) + found.newest
        messages: list[Message | Damaged] = []
        records = connection.execute(_RECORDS, places)
        while rows := records.fetchmany(SLICE):
            messages += decode_all([record for (record,) in rows])
            if time.monotonic() > deadline:
                raise TimeoutError
        if len(messages) == found.newest - above:
            return list(map(Stored, range(above + 1, found.newest + 1), messages))
        sequences = [place & SEQUENCE_MAX for (place,) in connection.execute(_PLACES, places)]
        return _with_holes(sequences, messages, above + 1)
    finally:
        if connection.in_transaction:  # some errors have ended it
            connection.execute("COMMIT")


def _with_holes(sequences: list[int], messages: list[Message | Damaged], expected: int) -> list[Stored]:
    history: list[Stored] = []
    for sequence, message in zip(sequences, messages, strict=True):
        if sequence != expected:
            gone = f"messages {expected} to {sequence - 1} are missing from the file"
            history.append(
                Stored(expected, Damaged(b"", f"{gone}: deleted by something other than recollect"))
            )
        history.append(Stored(sequence, message))
        expected = sequence + 1
    return history


def _live_sessions(connection: sqlite3.Connection, above: int) -> list[tuple[int, bytes]]:
    return connection.execute(_LIVE_SESSIONS, (above, time.time())).fetchall()


def _expired_keys(connection: sqlite3.Connection) -> list[bytes]:
    rows = connection.execute(
        "SELECT key FROM recollect_sessions WHERE expires_at <= ? LIMIT 100", (time.time(),)
    )
    return [key for (key,) in rows]


# ---- opening


def _open_file(kind: type[SqliteStore], path: Path, asked: str | None, options: Options) -> SqliteStore:
    policy = choose_policy(asked, options, path)
    deadline = time.monotonic() + options.timeout_s
    opened: list[SqliteStore] = []

    def attempt() -> None:
        identity = prepare_file(path, policy, options.file_mode, deadline)
        opened.append(kind(path, policy, options, identity))

    with opening(path):
        # Any step may meet a lock: another process recovers, or changes the journal mode.
        if not until(deadline, attempt):
            raise EngineUnavailable(f"{path} was locked by another process for {options.timeout_s:g} s")
    return opened[0]
