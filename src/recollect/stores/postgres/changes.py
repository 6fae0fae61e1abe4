"""What a PostgreSQL store does besides appending and reading: each change is one function in the engine.

The functions are in `migrations/versions/r0003_changes.py`. Each locks the session's row, looks for the turn, compares
`expect`, and only then writes; it answers with numbers, the first of which says how it went.
"""

import logging
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import asyncpg

from recollect.appending import (
    Append,
    Said,
    SessionChange,
    checked_expect,
    listed,
    prefix_key,
    session_key,
    session_of,
)
from recollect.bounds import INTEGER_MAX
from recollect.changing import (
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
from recollect.erasure import NO_ID, Erasure, after_forgetting, trace_of
from recollect.errors import Conflict, EngineUnavailable, NotWritten, RecollectError, advising
from recollect.known import Known, KnownSessions, Told, ended_by
from recollect.slices import too_long
from recollect.store import Description, Options, Receipt, SessionState, Stored
from recollect.stores.postgres import schema
from recollect.stores.postgres.durability import Reach
from recollect.stores.postgres.errors import row_changed, write_error
from recollect.stores.postgres.losses import Expected, go_on, refused, tell
from recollect.witness import Witness

log = logging.getLogger("recollect")

NAMES_AT_ONCE = 500

SETTINGS_CHANGED = "RC001"
"""Raised by every function that changes something, before it does."""
ONE_REFUSED = "RC002"
"""Raised by `recollect_append_all`, with the outcomes as its detail."""

_LOST_WHOLE = (0, 0, False, False, None, None, None)
"""What `schema.DESCRIBE` would return for a session that was lost with the engine's last writes."""


class PostgresChanges(ABC):
    """The part of `PostgresStore` that changes, lists and describes sessions."""

    _identity: str
    _known: KnownSessions
    _options: Options
    _reach: Reach
    _timeout_s: float
    _ttl_kept: bool
    _witness: Witness | None

    # ---- provided by the store

    @abstractmethod
    async def _read(self, statement: str, *arguments: Any) -> list[asyncpg.Record]: ...

    @abstractmethod
    async def _write(
        self, statement: str, arguments: tuple[Any, ...], deadline: float | None = None
    ) -> list[asyncpg.Record]: ...

    @abstractmethod
    async def _reach_again(self, deadline: float) -> None: ...

    @abstractmethod
    def _arguments(self, appends: list[Append]) -> tuple[Any, ...]: ...

    @abstractmethod
    async def history(
        self, session: str, *, last: int | None = None, after: int | None = None
    ) -> list[Stored]: ...

    @abstractmethod
    async def _erase(self, session: str, key: bytes, expect: int | None) -> Erasure: ...

    # ---- the contract

    async def position(self, session: str) -> int:
        """See `recollect.store.Positioned`."""
        key = session_key(session)
        known = self._known.of(key)
        told = known.told  # taken before reading: later acknowledgements must not be compared with this read
        rows = await self._read(schema.SESSION, key)
        last = rows[0][0] if rows else 0
        if last is None:
            raise row_changed()
        return max(last, await self._still(key, known, told, last))

    async def forget(self, session: str, *, expect: int | None = None, erase: bool = False) -> Erasure | None:
        """See `recollect.store.Store`. Messages too many to free at once are left to `sweep`."""
        deadline = time.monotonic() + self._timeout_s
        key, last_seen = session_key(session), checked_expect(expect)
        arguments = (key, expected(last_seen), schema.ROWS_FREED_MAX)
        with advising("forget again"):
            outcomes, _ = await self._changed(schema.FORGET, arguments, (key,), deadline)
        outcome, unfreed, last = outcomes
        if outcome == schema.CONFLICT:
            assert expect is not None
            raise self._met(key, Conflict(session, expect, last))
        await self._free(unfreed, deadline)
        if not erase:
            return None
        with after_forgetting():
            return await self._erase(session, key, last_seen)

    async def retract(
        self, session: str, *sequences: int, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `recollect.store.Retractable`."""
        change = checked_retraction(session, sequences, turn, expect)
        arguments = (change.key, change.sequences, *_claims(change), self._options.turns_kept)
        sent_at = time.monotonic()
        (outcome, first, last), reached = await self._changed(schema.RETRACT, arguments, (change.key,))
        if outcome == schema.NO_MESSAGE:
            raise change.not_found(first)
        return self._receipt(change, reached, sent_at, outcome, first, last)

    async def replace(
        self,
        session: str,
        messages: Sequence[Said],
        *,
        turn: str | None = None,
        expect: int | None = None,
    ) -> Receipt:
        """See `recollect.store.Replaceable`. Messages too many to free at once are left to `sweep`."""
        change = checked_replacement(session, messages, turn, expect)
        sent_at = time.monotonic()
        deadline = sent_at + self._timeout_s
        options = self._options
        arguments = (
            *(change.key, change.records, *_claims(change), options.ttl, self._ttl_kept),
            *(options.turns_kept, schema.ROWS_FREED_MAX),
        )
        numbers, reached = await self._changed(schema.REPLACE, arguments, (change.key,), deadline)
        outcome, first, last, unfreed = numbers
        receipt = self._receipt(change, reached, sent_at, outcome, first, last)
        await self._free(unfreed, deadline)
        return receipt

    async def annotate(
        self, session: str, metadata: Mapping[str, Any], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `recollect.store.Describable`."""
        change = checked_annotation(session, metadata, turn, expect)
        options = self._options
        arguments = (change.key, change.metadata, *_claims(change), options.ttl, options.turns_kept)
        sent_at = time.monotonic()
        (outcome, first, last), reached = await self._changed(schema.ANNOTATE, arguments, (change.key,))
        return self._receipt(change, reached, sent_at, outcome, first, last)

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
        change = checked_fork(session, new, upto, turn, expect)
        options = self._options
        arguments = (
            *(change.key, change.new_key, change.upto, *_claims(change)),
            *(options.ttl, options.turns_kept),
        )
        sent_at = time.monotonic()
        (outcome, first, last), reached = await self._changed(
            schema.FORK, arguments, (change.key, change.new_key)
        )
        if outcome == schema.NOTHING_THERE:
            raise change.not_found()
        if outcome == schema.TAKEN:
            raise change.taken(last)
        return self._receipt(change, reached, sent_at, outcome, first, last, new)

    async def append_many(
        self,
        turns: Mapping[str, Sequence[Said]],
        *,
        turn: str | None = None,
        expect: Mapping[str, int] | None = None,
    ) -> dict[str, Receipt]:
        """See `recollect.store.Spanning`."""
        appends = checked_turns(turns, turn, expect)
        known = [self._known.of(append.key) for append in appends]
        sent_at = time.monotonic()
        try:
            outcomes, reached = await self._changed(
                schema.APPEND_ALL, self._arguments(appends), [append.key for append in appends]
            )
        except RecollectError as error:
            if getattr(error.__cause__, "sqlstate", None) != ONE_REFUSED:
                raise
            detail = getattr(error.__cause__, "detail", "") or ""
            outcomes, reached = [int(number) for number in detail.split()], self._reach
        receipts: dict[str, Receipt] = {}
        for append, receipt in zip(appends, outcomes_of(appends, outcomes, reached), strict=True):
            if isinstance(receipt, Exception):
                raise self._met(append.key, receipt)
            receipts[receipt.session] = receipt
        for append, one in zip(appends, known, strict=True):
            self._note(append.session, one, receipts[append.session].last, sent_at)
        return {session: receipts[session] for session in turns}

    async def describe(self, session: str) -> Description:
        """See `recollect.store.Describable`."""
        key = session_key(session)
        known = self._known.of(key)
        told = known.told
        rows = await self._read(schema.DESCRIBE, key)
        last, floor, expires, expired, created, updated, metadata = rows[0] if rows else _LOST_WHOLE
        if last is None:
            raise row_changed()
        last = max(last, await self._still(key, known, told, last))
        if not rows and not last:
            return Description(session, SessionState.ABSENT, 0, None, None, {})
        state = state_of(last, floor, expires, expired)
        kept = metadata if state is SessionState.LIVE else None
        return Description(session, state, last, created, updated, metadata_of(session, kept))

    async def find(self, session: str, message_id: str) -> Stored | None:
        """See `recollect.store.Findable`. The engine scans the session's records; there is no index."""
        key, needle = session_key(session), needle_of(message_id)
        if needle is None:
            return found_in(await self.history(session), message_id)
        deadline = time.monotonic() + self._timeout_s
        while True:
            below, floors = INTEGER_MAX, set[int]()
            while rows := await self._read(schema.FIND, key, needle, below):
                found = found_in(reversed([(row[0], row[1]) for row in rows]), message_id)
                if found is not None:
                    return found
                below = rows[-1][0]
                floors.add(rows[0][2])
            await self.position(session)  # raises if the session's row is not to be believed
            # If all messages were replaced between two statements, it may have moved from what was still to be seen.
            if not floors or floors == {row[1] for row in await self._read(schema.SESSION, key)}:
                return None
            if time.monotonic() > deadline:
                raise too_long(self._timeout_s)

    async def sessions(
        self, *, prefix: str | None = None, updated_after: float | None = None
    ) -> AsyncIterator[str]:
        """See `recollect.store.Listable`. When ordered by change, the order is that of the first moment."""
        start = prefix_key(prefix) or None
        if updated_after is not None:
            moment = checked_updated_after(updated_after)
            [[packed]] = await self._read(schema.CHANGED_SESSIONS, start, moment)
            packed = memoryview(packed or b"")
            for first in range(0, len(packed), 8 * NAMES_AT_ONCE):
                some = packed[first : first + 8 * NAMES_AT_ONCE]
                numbers = [number for (number,) in struct.iter_unpack(">q", some)]
                for session in listed(name for (name,) in await self._read(schema.NAMED_SESSIONS, numbers)):
                    yield session
            return
        above = 0
        while rows := await self._read(schema.LIVE_SESSIONS, above, start):
            for session in listed(name for _, name in rows):
                yield session
            above = rows[-1][0]

    # ---- how

    async def _changed(
        self,
        statement: str,
        arguments: tuple[Any, ...],
        keys: Sequence[bytes],
        deadline: float | None = None,
    ) -> tuple[list[int], Reach]:
        """The function's numbers, and the durability that the write reached.

        Tries again if the server's settings changed, or if it has lost messages of these sessions.
        """
        if deadline is None:
            deadline = time.monotonic() + self._timeout_s
        lost: set[bytes] = set()
        for _ in range(3):
            reached = self._reach
            known = [self._known.of(key) for key in keys]
            lasts = [one.last for one in known]
            given = refused(arguments, keys, known, lost)
            claimed = (*given, reached.commit_mode, reached.fingerprint, keys, lasts)
            try:
                rows = await self._write(statement, claimed, deadline)
            except RecollectError as error:
                if getattr(error.__cause__, "sqlstate", None) != SETTINGS_CHANGED:
                    raise
                await self._reach_again(deadline)
                continue
            numbers: list[int] | None = rows[0][0]
            if numbers is not None:
                return numbers, reached
            try:
                lost |= await go_on(
                    self._read, self._write, self._was_erased, self._known, self._identity, keys, deadline
                )
            except EngineUnavailable as error:
                raise write_error(error) from error
        raise NotWritten("PostgreSQL's durability settings keep changing; nothing was written")

    def _receipt(
        self,
        change: SessionChange,
        reached: Reach,
        sent_at: float,
        outcome: int,
        first: int,
        last: int,
        new: str | None = None,
    ) -> Receipt:
        """For the session that was changed, or for its new fork."""
        found = _outcome(change, reached, outcome, first, last)
        if isinstance(found, Exception):
            raise self._met(change.key, found)
        if new is not None:
            found = Receipt(new, first, last, found.durability, found.replicas)
        self._note(found.session, self._known.of(session_key(found.session)), found.last, sent_at)
        return found

    def _met(self, key: bytes, error: Exception) -> Exception:
        """An error that the caller is told now: after a conflict, the caller reads the session again."""
        if isinstance(error, Conflict):
            self._known.of(key).meet()
        return error

    async def _still(self, key: bytes, known: Known, told: Told, found: int) -> int:
        """What was told of the session when a read began, unless the session was erased meanwhile. A loss is logged."""
        if found < known.still(told):
            if await self._was_erased(key, known, told):
                return 0
            tell(key, known, found)
        return known.still(told)

    async def _was_erased(self, key: bytes, known: Known, told: Told) -> bool:
        """Whether the session was erased after all that was told, which then counts no more."""
        rows = await self._read(schema.ERASED_AGO, NO_ID + trace_of(self._identity, key))
        if known.erased:
            return True
        if not rows or not ended_by(rows[0][0], told):
            return False
        self._known.erased(key, known, told)
        if self._witness is not None:
            await self._witness.erase(session_of(key))
        return True

    def _note(self, session: str, known: Known, last: int, sent_at: float) -> None:
        known.note(last, sent_at)
        if self._witness is not None and not known.erased:
            self._witness.note(session, last, sent_at)

    async def _free(self, unfreed: int, deadline: float) -> None:
        """Frees the room of a session's messages that are no longer shown, as far as time allows."""
        try:
            while unfreed:
                if time.monotonic() > deadline - self._timeout_s / 2:
                    raise NotWritten("it was too large to free at once")
                [[more]] = await self._write(schema.FREE, (unfreed, schema.ROWS_FREED_MAX), deadline)
                unfreed = unfreed if more else 0
        except RecollectError as error:  # what is left is no longer shown
            log.warning("forgotten messages still occupy room (%s); sweep() frees it", error)


def outcomes_of(appends: Sequence[Append], numbers: list[int], reached: Reach) -> list[Receipt | Exception]:
    """The outcomes of a batch's appends, from three numbers each."""
    return [
        _outcome(append, reached, *numbers[3 * place : 3 * place + 3]) for place, append in enumerate(appends)
    ]


def _outcome(
    change: SessionChange, reached: Reach, outcome: int, first: int, last: int
) -> Receipt | Exception:
    if outcome == schema.REUSED:
        return change.reused()
    if outcome == schema.CONFLICT:
        return change.conflict(last)
    return Receipt(change.session, first, last, reached.durability, reached.replicas)


def _claims(change: SessionChange) -> tuple[bytes | None, bytes | None, int | None]:
    return change.turn, change.fingerprint, expected(change.expect)


def expected(position: int | None) -> Expected | None:
    return None if position is None else Expected(position)


def state_of(last: int, floor: int, expires: bool, expired: bool) -> SessionState:
    if floor == last:  # expired and swept, or forgotten, which ends any time to live
        return SessionState.EXPIRED if expires else SessionState.FORGOTTEN
    return SessionState.EXPIRED if expired else SessionState.LIVE
