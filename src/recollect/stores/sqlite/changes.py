"""What a SQLite store does with a session besides appending and reading: changes, descriptions, and turn ids.

Every change is one job in a write transaction: it looks for the turn, compares `expect`, and only then writes. A change
that stores no message leaves a tombstone at the sequence it takes, so the newest row of a session is always the last
sequence it assigned, and another process that appends finds that place taken.
"""

import contextlib
import logging
import sqlite3
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recollect.appending import Append, Said, SessionChange, checked_expect, listed, prefix_key, session_key
from recollect.changing import (
    Annotation,
    Fork,
    Replacement,
    Retraction,
    checked_annotation,
    checked_fork,
    checked_replacement,
    checked_retraction,
    checked_turns,
    checked_updated_after,
    found_in,
    metadata_of,
    needle_of,
)
from recollect.erasure import Erasure, after_forgetting
from recollect.errors import Conflict, NotWritten, RecollectError, Refused, Unreadable, advising, shorten
from recollect.store import Description, Options, Receipt, SessionState, Stored
from recollect.stores.sqlite.file import ChosenPolicy
from recollect.stores.sqlite.rows import (
    SEQUENCE_MAX,
    Session,
    changed_sessions,
    described,
    free,
    live_sessions,
    named_sessions,
    records_with,
    seal,
    session_row,
)
from recollect.stores.sqlite.transactions import SqliteTransactions
from recollect.tombstone import run_first, tombstone
from recollect.witness import Witness

log = logging.getLogger("recollect")

INSERT = "INSERT INTO recollect_messages (place, record, written) VALUES (?, ?, ?)"

_TURN = """
SELECT first, last, fingerprint FROM recollect_turns LEFT JOIN recollect_fingerprints USING (session, first)
WHERE session = ? AND turn = ?"""
"""Turns written by a release without fingerprints have none."""

_PRUNE_FINGERPRINTS = """
DELETE FROM recollect_fingerprints WHERE session = :session AND first < (
    SELECT first FROM recollect_turns WHERE session = :session ORDER BY number LIMIT 1)"""

NAMES_AT_ONCE = 500

StoreJob = Append | Callable[[sqlite3.Connection], Any]


class LongJob(partial[Any]):
    """A change that may write as many rows as a session has, so it does not run on the event loop."""


class SqliteChanges(SqliteTransactions[StoreJob]):
    """The part of `SqliteStore` that changes, lists and describes sessions."""

    def __init__(self, path: Path, policy: ChosenPolicy, options: Options) -> None:
        super().__init__(path, policy, options)
        self._options = options
        self._ttl_s = None if options.ttl is None else options.ttl.total_seconds()
        self._witness: Witness | None = None
        # Sessions as this store's last appends left them; valid while `data_version` shows that nobody else wrote.
        self._known: dict[bytes, Session] = {}

    @abstractmethod
    async def _erase(self, session: str, key: bytes, expect: int | None) -> Erasure: ...

    # ---- the contract

    async def position(self, session: str) -> int:
        """See `recollect.store.Positioned`."""
        key = session_key(session)
        found = await self._read(lambda connection: session_row(connection, key), inline=True)
        return 0 if found is None else found.last

    async def forget(self, session: str, *, expect: int | None = None, erase: bool = False) -> Erasure | None:
        """See `recollect.store.Store`. Messages too many to free at once are left to `sweep`."""
        key, last_seen = session_key(session), checked_expect(expect)
        deadline = time.monotonic() + self._timeout_s / 2

        def job(connection: sqlite3.Connection) -> int | None:
            if expect is not None:
                found = session_row(connection, key)
                if last_seen != (actual := 0 if found is None else found.last):
                    raise Conflict(session, expect, actual)
            return self._end(connection, key, "forgotten")

        with advising("forget again"):
            freed = await self._submit(job)
        await self._free_all(freed, deadline)
        if not erase:
            return None
        with after_forgetting():
            return await self._erase(session, key, last_seen)

    async def retract(
        self, session: str, *sequences: int, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `recollect.store.Retractable`."""
        change, sent_at = checked_retraction(session, sequences, turn, expect), time.monotonic()
        return self._noted(await self._submit(partial(self._retract, change=change)), sent_at)

    async def replace(
        self,
        session: str,
        messages: Sequence[Said],
        *,
        turn: str | None = None,
        expect: int | None = None,
    ) -> Receipt:
        """See `recollect.store.Replaceable`. Messages too many to free at once are left to `sweep`."""
        change, sent_at = checked_replacement(session, messages, turn, expect), time.monotonic()
        receipt, unfreed = await self._submit(partial(self._replace, change=change))
        await self._free_all(unfreed, sent_at + self._timeout_s / 2)
        return self._noted(receipt, sent_at)

    async def annotate(
        self, session: str, metadata: Mapping[str, Any], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `recollect.store.Describable`."""
        change, sent_at = checked_annotation(session, metadata, turn, expect), time.monotonic()
        return self._noted(await self._submit(partial(self._annotate, change=change)), sent_at)

    async def fork(
        self,
        session: str,
        new: str,
        *,
        upto: int | None = None,
        turn: str | None = None,
        expect: int | None = None,
    ) -> Receipt:
        """See `recollect.store.Forkable`."""
        change, sent_at = checked_fork(session, new, upto, turn, expect), time.monotonic()
        return self._noted(await self._submit(LongJob(self._fork, change=change)), sent_at)

    async def append_many(
        self,
        turns: Mapping[str, Sequence[Said]],
        *,
        turn: str | None = None,
        expect: Mapping[str, int] | None = None,
    ) -> dict[str, Receipt]:
        """See `recollect.store.Spanning`."""
        appends, sent_at = checked_turns(turns, turn, expect), time.monotonic()
        receipts = await self._submit(partial(self._append_all, appends=appends))
        return {session: self._noted(receipts[session], sent_at) for session in turns}

    async def describe(self, session: str) -> Description:
        """See `recollect.store.Describable`."""
        key = session_key(session)
        found = await self._read(lambda connection: described(connection, key), inline=True)
        if found is None:
            return Description(session, SessionState.ABSENT, 0, None, None, {})
        row, created, updated, metadata = found
        state = state_of(row)
        kept = metadata if state is SessionState.LIVE else None
        return Description(session, state, row.last, created, updated, metadata_of(session, kept))

    async def find(self, session: str, message_id: str) -> Stored | None:
        """See `recollect.store.Findable`. Scans the session's records; there is no index."""
        key, needle = session_key(session), needle_of(message_id)
        deadline = time.monotonic() + self._timeout_s

        def query(connection: sqlite3.Connection) -> Stored | None:
            with contextlib.closing(records_with(connection, key, needle or b"")) as portions:
                for rows in portions:
                    found = found_in(reversed(rows), message_id)
                    if found is not None:
                        return found
                    if time.monotonic() > deadline:
                        raise TimeoutError
            return None

        return await self._read(query, deadline=deadline)

    async def sessions(
        self, *, prefix: str | None = None, updated_after: float | None = None
    ) -> AsyncIterator[str]:
        """See `recollect.store.Listable`. When ordered by change, the order is that of the first moment."""
        start = prefix_key(prefix) or None
        if updated_after is not None:
            moment = checked_updated_after(updated_after)
            numbers = await self._read(partial(changed_sessions, prefix=start, updated_after=moment))
            for first in range(0, len(numbers), NAMES_AT_ONCE):
                some = numbers[first : first + NAMES_AT_ONCE]
                for session in listed(await self._read(partial(named_sessions, numbers=some))):
                    yield session
            return
        above = 0
        while rows := await self._read(partial(live_sessions, above=above, prefix=start)):
            for session in listed(key for _, key in rows):
                yield session
            above = rows[-1][0]

    # ---- inside the write transaction

    def _may_take_long(self, job: StoreJob) -> bool:
        return isinstance(job, LongJob)

    @abstractmethod
    def _append(self, connection: sqlite3.Connection, append: Append) -> Receipt: ...

    def _append_all(self, connection: sqlite3.Connection, appends: list[Append]) -> dict[str, Receipt]:
        """All of them or none: what the first ones wrote is rolled back if a later one is refused."""
        connection.execute("SAVEPOINT appends")
        try:
            receipts = {append.session: self._append(connection, append) for append in appends}
        except BaseException:
            self._known.clear()
            connection.execute("ROLLBACK TO appends")
            raise
        finally:
            if connection.in_transaction:
                connection.execute("RELEASE appends")
        return receipts

    def _retract(self, connection: sqlite3.Connection, change: Retraction) -> Receipt:
        found = self._begin(connection, change, change.key)
        if isinstance(found, Receipt):
            return found
        if found is None:
            raise change.not_found(change.sequences[0])
        for sequence in change.sequences:
            record = _record(connection, found.id << 32 | sequence) if sequence <= SEQUENCE_MAX else None
            if record is None or sequence <= found.floor or run_first(record) is not None:
                raise change.not_found(sequence)
        room(change, found)
        for sequence in change.sequences:
            self._hide(connection, found, sequence)
        return self._marked(connection, change, found)

    def _replace(self, connection: sqlite3.Connection, change: Replacement) -> tuple[Receipt, int | None]:
        found = self._begin(connection, change, change.key, made=True)
        if isinstance(found, Receipt):
            return found, None
        first = room(change, found)
        last = first - 1 + _size(change)
        if found is None or found.expires_at is not None or self._ttl_s is not None:
            found = self._begin_or_renew(connection, change.key, found)
        now = time.time()
        for sequence, record in enumerate(change.records or [tombstone(first)], first):
            connection.execute(INSERT, (found.id << 32 | sequence, record, now))
        connection.execute(
            "UPDATE recollect_sessions SET floor = ?, marked = ? WHERE id = ?",
            (first - 1, not change.records, found.id),
        )
        seal(connection, found.id)
        receipt = self._finished(connection, change, found.id, first, last)
        return receipt, found.id if free(connection, found.id) else None

    def _annotate(self, connection: sqlite3.Connection, change: Annotation) -> Receipt:
        found = self._begin(connection, change, change.key, made=True)
        if isinstance(found, Receipt):
            return found
        room(change, found)
        if found is None or found.newest is None or found.expired(time.time()):
            found = self._begin_or_renew(connection, change.key, found)
        receipt = self._marked(connection, change, found)
        connection.execute(
            "INSERT OR REPLACE INTO recollect_about VALUES (?, ?)", (found.id, change.metadata)
        )
        return receipt

    def _fork(self, connection: sqlite3.Connection, change: Fork) -> Receipt:
        new = session_row(connection, change.new_key)
        earlier = None if new is None else self._earlier(connection, new, change)
        if earlier is not None:
            return Receipt(change.new, earlier.first, earlier.last, earlier.durability)
        source = self._begin(connection, change, change.key, turn=False)
        if not isinstance(source, Session):
            raise change.not_found()
        if new is not None:
            raise change.taken(new.last)
        new = self._begin_or_renew(connection, change.new_key, None)
        end = max(1, min(source.last, change.upto))
        floor = min(source.floor, end - 1)
        now = time.time()
        copied = connection.execute(
            f"""INSERT INTO recollect_messages (place, record, written)
            SELECT (? << 32) | (place & {SEQUENCE_MAX}), record, ? FROM recollect_messages
            WHERE place BETWEEN ? AND ? ORDER BY place""",
            (new.id, now, (source.id << 32) + source.floor + 1, (source.id << 32) + min(end, change.upto)),
        )
        last_copied = copied.lastrowid & SEQUENCE_MAX if copied.rowcount and copied.lastrowid else floor
        cut = last_copied < end
        if cut:  # it ends within a run, or before the first message
            connection.execute(INSERT, (new.id << 32 | end, tombstone(last_copied + 1), now))
        connection.execute(
            "UPDATE recollect_sessions SET floor = ?, marked = ? WHERE id = ?",
            (floor, bool(source.marked or cut), new.id),
        )
        seal(connection, new.id)
        connection.execute(
            "INSERT INTO recollect_about SELECT ?, metadata FROM recollect_about WHERE session = ?",
            (new.id, source.id),
        )
        receipt = self._finished(connection, change, new.id, end, end)
        return Receipt(change.new, receipt.first, receipt.last, receipt.durability)

    def _begin(
        self,
        connection: sqlite3.Connection,
        change: SessionChange,
        key: bytes,
        *,
        made: bool = False,
        turn: bool = True,
    ) -> Session | Receipt | None:
        """The session to be changed; the receipt if the turn is already stored; None if the session does not exist or
        shows no messages, unless the change can recreate it (`made`)."""
        self._known.pop(key, None)
        found = session_row(connection, key)
        if turn and found is not None:
            earlier = self._earlier(connection, found, change)
            if earlier is not None:
                return earlier
        last = 0 if found is None else found.last
        if change.expect is not None and change.expect != last:
            raise change.conflict(last)
        if found is None or (not made and (found.newest is None or found.expired(time.time()))):
            return None
        return found

    def _earlier(
        self, connection: sqlite3.Connection, found: Session, change: SessionChange
    ) -> Receipt | None:
        """The receipt of a turn stored before."""
        if change.turn is None:
            return None
        earlier = connection.execute(_TURN, (found.id, change.turn)).fetchone()
        if earlier is None:
            return None
        first, last, fingerprint = earlier
        if not (type(first) is type(last) is int):
            raise Unreadable(f"the turn's row was changed by something other than recollect: {earlier[:2]}")
        if fingerprint is not None and fingerprint != change.fingerprint:
            raise change.reused()
        size = _size(change)
        # The same turn has the same number of messages. One without a fingerprint is an older release's, or damaged.
        if last - first + 1 != size and (
            fingerprint is not None or _begins(connection, found.id, last - size + 1)
        ):
            raise Unreadable(
                f"the turn's row has changed on the disk: {first} to {last} are not its {size} places"
            )
        # The first write may not be synced yet if another process made it with less durability; a commit that writes
        # syncs everything before it. SQLite skips an update that changes nothing, so this one counts up.
        connection.execute("UPDATE recollect_sessions SET repeats = repeats + 1 WHERE id = ?", (found.id,))
        return Receipt(change.session, first, last, self._policy.durability)

    def _marked(self, connection: sqlite3.Connection, change: SessionChange, found: Session) -> Receipt:
        """Finishes a change that stores no message: a tombstone takes its sequence."""
        sequence = found.last + 1
        self._hide(connection, found, sequence)
        if not found.marked:
            connection.execute("UPDATE recollect_sessions SET marked = 1 WHERE id = ?", (found.id,))
            seal(connection, found.id)
        return self._finished(connection, change, found.id, sequence, sequence)

    def _hide(self, connection: sqlite3.Connection, found: Session, sequence: int) -> None:
        """Puts a tombstone at one sequence, joined with those right before and after it."""
        place = found.id << 32 | sequence
        first = run_first(_record(connection, place - 1))
        if first is not None:
            connection.execute("DELETE FROM recollect_messages WHERE place = ?", (place - 1,))
        record = tombstone(first or sequence)
        following = connection.execute(
            "SELECT place, record FROM recollect_messages WHERE place BETWEEN ? AND ? ORDER BY place LIMIT 1",
            (place + 1, (found.id << 32) + SEQUENCE_MAX),
        ).fetchone()
        if following is not None and run_first(following[1]) == sequence + 1:
            connection.execute("DELETE FROM recollect_messages WHERE place = ?", (place,))
            connection.execute(
                "UPDATE recollect_messages SET record = ? WHERE place = ?", (record, following[0])
            )
        else:
            connection.execute(INSERT.replace("INSERT", "INSERT OR REPLACE"), (place, record, time.time()))

    def _finished(
        self, connection: sqlite3.Connection, change: SessionChange, session: int, first: int, last: int
    ) -> Receipt:
        if change.turn is not None:
            self._remember_turn(connection, session, change, first, last)
        return Receipt(change.session, first, last, self._policy.durability)

    def _begin_or_renew(self, connection: sqlite3.Connection, key: bytes, found: Session | None) -> Session:
        """The session, made ready for the append: created if new, emptied if expired, its time to live renewed."""
        now = time.time()
        expires_at = None if self._ttl_s is None else now + self._ttl_s
        if found is None:
            row = connection.execute(
                "INSERT INTO recollect_sessions (key, expires_at, created) VALUES (?, ?, ?)",
                (key, expires_at, now),
            ).lastrowid
            assert row is not None
            seal(connection, row)
            return Session(row, 0, None, expires_at, 0, None)
        if found.expired(now):
            self._end(connection, key, "expired")
            found.floor, found.newest, found.marked = found.last, None, 0
        elif self._ttl_s is not None and self._options.refresh == "never" and found.newest is not None:
            expires_at = found.expires_at if found.expires_at is not None else expires_at
        connection.execute(
            "UPDATE recollect_sessions SET expires_at = ? WHERE id = ?", (expires_at, found.id)
        )
        seal(connection, found.id)
        found.ended, found.expires_at = None, expires_at
        return found

    def _remember_turn(
        self, connection: sqlite3.Connection, session: int, change: SessionChange, first: int, last: int
    ) -> None:
        (number,) = connection.execute(
            "SELECT coalesce(max(number), 0) + 1 FROM recollect_turns WHERE session = ?", (session,)
        ).fetchone()
        connection.execute(
            "INSERT INTO recollect_turns VALUES (?, ?, ?, ?, ?)", (session, number, change.turn, first, last)
        )
        connection.execute(
            "INSERT OR REPLACE INTO recollect_fingerprints VALUES (?, ?, ?)",
            (session, first, change.fingerprint),
        )
        forgotten = number - self._options.turns_kept
        if forgotten <= 0:  # numbers begin at 1
            return
        pruned = connection.execute(
            "DELETE FROM recollect_turns WHERE session = ? AND number <= ?", (session, forgotten)
        )
        if pruned.rowcount:
            connection.execute(_PRUNE_FINGERPRINTS, {"session": session})

    def _end(self, connection: sqlite3.Connection, key: bytes, why: str) -> int | None:
        """Ends the session: hides its messages at once and removes them; its last sequence stays known. Returns the
        session's number if one transaction cannot remove all of them."""
        self._known.pop(key, None)
        found = session_row(connection, key)
        if found is None:
            return None
        connection.execute(
            "UPDATE recollect_sessions SET floor = ?, ended = ?, changed = ?, expires_at = NULL, marked = 0 "
            "WHERE id = ?",
            (found.last, why, time.time(), found.id),
        )
        seal(connection, found.id)
        connection.execute("DELETE FROM recollect_about WHERE session = ?", (found.id,))
        return found.id if free(connection, found.id) else None

    # ---- running

    async def _submit(self, job: StoreJob) -> Any:
        self._check_open(NotWritten)
        return await self._batcher.submit(job)

    async def _free_all(self, unfreed: int | None, deadline: float) -> None:
        """Frees the room of a session's messages that are no longer shown, as far as time allows."""
        try:
            while unfreed is not None:
                if time.monotonic() > deadline:
                    raise NotWritten("it was too large to free at once")
                if not await self._submit(partial(free, session=unfreed)):
                    unfreed = None
        except RecollectError as error:  # what is left is no longer shown
            log.warning("forgotten messages still occupy room (%s); sweep() frees it", error)

    def _noted(self, receipt: Receipt, sent_at: float) -> Receipt:
        if self._witness is not None:
            self._witness.note(receipt.session, receipt.last, sent_at)
        return receipt


def state_of(found: Session | None) -> SessionState:
    if found is None:
        return SessionState.ABSENT
    if found.newest is not None:
        return SessionState.EXPIRED if found.expired(time.time()) else SessionState.LIVE
    return SessionState.EXPIRED if found.ended == "expired" else SessionState.FORGOTTEN


def _begins(connection: sqlite3.Connection, session: int, first: int) -> bool:
    """Whether a turn with a fingerprint began here."""
    found = "SELECT 1 FROM recollect_fingerprints WHERE session = ? AND first = ?"
    return connection.execute(found, (session, first)).fetchone() is not None


def _size(change: SessionChange) -> int:
    """How many sequences a change takes."""
    return max(1, len(change.records)) if isinstance(change, Append | Replacement) else 1


def _record(connection: sqlite3.Connection, place: int) -> object:
    row = connection.execute("SELECT record FROM recollect_messages WHERE place = ?", (place,)).fetchone()
    return None if row is None else row[0]


def room(change: SessionChange, found: Session | None) -> int:
    """The first sequence that the change takes. Asked before anything is written."""
    first = 1 if found is None else found.last + 1
    if first - 1 + _size(change) > SEQUENCE_MAX:
        raise Refused(f"session {shorten(change.session)}: full after {SEQUENCE_MAX:,} messages")
    return first
