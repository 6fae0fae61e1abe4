"""What a Redis store does besides appending and reading: each change is one script in the engine.

Every script looks for the turn, compares `expect`, and only then writes (`lua/common.lua`). They are sent together with
appends (`commit`), so they are just as durable.
"""

import contextlib
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from recollect.appending import Append, Said, SessionChange, checked_expect, listed, prefix_key, session_key
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
from recollect.erasure import Erasure, after_forgetting
from recollect.errors import (
    Conflict,
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    Refused,
    Unreadable,
    advising,
    shorten,
)
from recollect.known import Known, Told
from recollect.slices import too_long
from recollect.store import Description, Options, Receipt, SessionState, Stored
from recollect.stores.redis.address import Address
from recollect.stores.redis.commit import QueuedWrite
from recollect.stores.redis.elements import is_number
from recollect.stores.redis.errors import slots_differ, was_denied, write_refused
from recollect.stores.redis.listing import SeenSessions
from recollect.stores.redis.places import Place, Places
from recollect.stores.redis.script import ANNOTATE, FIND, FORGET, FORK, MANY, REPLACE, RETRACT, STATE, Script
from recollect.stores.redis.servers import Servers
from recollect.stores.redis.slots import slot_of
from recollect.stores.redis.wire import Reply, ReplyError, pack, pack_arguments
from recollect.witness import Witness

SEQUENCE_MAX = 2**39 - 1
"""See `append.lua`."""

_STATES = {state.value.encode(): state for state in SessionState}


class RedisChanges(ABC):
    """The part of `RedisStore` that changes, lists and describes sessions."""

    _address: Address
    _append_options: bytes
    _option_values: tuple[bytes, ...]
    _options: Options
    _servers: Servers
    _denied: threading.Event
    _places: Places
    _witness: Witness | None

    # ---- provided by the store

    @abstractmethod
    def _check_open(self, kind: type[RecollectError]) -> None: ...

    @abstractmethod
    async def _has_lost(self, session: str, place: Place, told: Told, found: Reply) -> bool: ...

    @abstractmethod
    async def _check_allowed_again(self) -> None: ...

    @abstractmethod
    def _append_arguments(self, append: Append, place: Place, behind: bytes) -> tuple[bytes, ...]: ...

    @abstractmethod
    async def _read(
        self, session: str, place: Place, last: int | None, after: int | None, deadline: float | None = None
    ) -> tuple[list[bytes], int, int, int]: ...

    @abstractmethod
    async def _run(
        self, script: Script, place: Place, rest: bytes, count: int, deadline: float | None = None
    ) -> Reply: ...

    @abstractmethod
    async def _erase(self, session: str, key: bytes, expect: int | None) -> Erasure: ...

    # ---- the contract

    async def position(self, session: str) -> int:
        """See `recollect.store.Positioned`."""
        key = session_key(session)
        self._check_open(EngineUnavailable)
        return (await self._read(session, self._places.of(key), 0, None))[2]

    async def forget(self, session: str, *, expect: int | None = None, erase: bool = False) -> Erasure | None:
        """See `recollect.store.Store`."""
        key, last_seen = session_key(session), checked_expect(expect)
        self._check_open(NotWritten)
        place = self._places.of(key)
        behind = b"ask"
        while True:
            told = place.known.told
            arguments = (told[0], claimed(last_seen, place.known), behind)
            write = QueuedWrite(FORGET, (place.keys,), pack_arguments(arguments), 3)
            with advising("forget again"):
                reply = await self._submit(write, place)
                if isinstance(reply, ReplyError):
                    raise write_refused(reply)
            if not (isinstance(reply, list) and reply[0] == b"behind"):
                break
            behind = await self._lost(session, place, told, reply[1])
        match reply:
            case [b"conflict", int(actual)] if expect is not None:
                place.known.meet()
                raise Conflict(session, expect, actual)
        if write.shortfall is not None:
            raise OutcomeUnknown(f"forgotten, but {write.shortfall}", "forget again")
        if not erase:
            return None
        with after_forgetting():
            return await self._erase(session, key, last_seen)

    async def retract(
        self, session: str, *sequences: int, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `recollect.store.Retractable`."""
        change = checked_retraction(session, sequences, turn, expect)
        reply, write = await self._changed(
            RETRACT, change, [b"%d" % sequence for sequence in change.sequences]
        )
        match reply:
            case [b"absent", int(sequence)]:
                raise change.not_found(sequence)
        return self._receipt(change, reply, write)

    async def replace(
        self,
        session: str,
        messages: Sequence[Said],
        *,
        turn: str | None = None,
        expect: int | None = None,
    ) -> Receipt:
        """See `recollect.store.Replaceable`."""
        change = checked_replacement(session, messages, turn, expect)
        return self._receipt(change, *await self._changed(REPLACE, change, change.records))

    async def annotate(
        self, session: str, metadata: Mapping[str, Any], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `recollect.store.Describable`."""
        change = checked_annotation(session, metadata, turn, expect)
        return self._receipt(change, *await self._changed(ANNOTATE, change, [change.metadata]))

    async def fork(
        self,
        session: str,
        new: str,
        *,
        upto: int | None = None,
        turn: str | None = None,
        expect: int | None = None,
    ) -> Receipt:
        """See `recollect.store.Forkable`. In a cluster both sessions must be in one slot, which is rare."""
        change = checked_fork(session, new, upto, turn, expect)
        self._check_open(NotWritten)
        behind = behind_new = b"ask"
        while True:
            source, place = self._places.of(change.key), self._places.of(change.new_key)
            self._check_one_slot([source, place])
            told, told_new = source.known.told, place.known.told
            common = self._common(change, place, behind_new, expect=None)
            rest = (change.upto, claimed(change.expect, source.known), told[0], behind)
            given = self._append_options + common + pack_arguments(rest)
            write = QueuedWrite(FORK, (place.keys, source.keys), given, 12)
            match reply := await self._submit(write, place):
                case [b"behind", found]:
                    behind_new = await self._lost(new, place, told_new, found)
                case [b"source behind", found]:
                    behind = await self._lost(session, source, told, found)
                case _:
                    break
        match reply:
            case [b"nothing", _]:
                raise change.not_found()
            case [b"taken", int(last)]:
                raise change.taken(last)
            case [b"source", int(last)]:
                source.known.meet()
                raise change.conflict(last)
        return self._receipt(change, reply, write, new)

    async def append_many(
        self,
        turns: Mapping[str, Sequence[Said]],
        *,
        turn: str | None = None,
        expect: Mapping[str, int] | None = None,
    ) -> dict[str, Receipt]:
        """See `recollect.store.Spanning`. In a cluster all sessions must be in one slot, which is rare."""
        appends = checked_turns(turns, turn, expect)
        self._check_open(NotWritten)
        behind = [b"ask"] * len(appends)
        while True:
            places = [self._places.of(append.key) for append in appends]
            self._check_one_slot(places)
            told = [place.known.told for place in places]
            arguments: list[bytes] = []
            for each in zip(appends, places, behind, strict=True):
                given = (*self._option_values, *self._append_arguments(*each))
                arguments += (b"%d" % len(given), *given)
            keys = tuple(place.keys for place in places)
            write = QueuedWrite(MANY, keys, pack_arguments(arguments), len(arguments))
            reply = await self._submit(write, places[0])
            match reply:
                case [b"refused", int(which), [b"behind", found]]:
                    one = which - 1
                    behind[one] = await self._lost(appends[one].session, places[one], told[one], found)
                    continue
                case [b"refused", int(which), refused]:
                    earlier_turn(appends[which - 1], refused, places[which - 1].known)
            break
        if isinstance(reply, ReplyError):
            raise write_refused(reply)
        if not isinstance(reply, list) or len(reply) != len(appends):
            raise OutcomeUnknown(f"unexpected reply {str(reply)[:200]}")
        receipts = {
            append.session: self._acknowledged(
                append.session, place, *_appended(append, answer, write, place.known), write
            )
            for append, place, answer in zip(appends, places, reply, strict=True)
        }
        return {session: receipts[session] for session in turns}

    async def describe(self, session: str) -> Description:
        """See `recollect.store.Describable`."""
        key = session_key(session)
        self._check_open(EngineUnavailable)
        place = self._places.of(key)
        told = place.known.told  # taken before reading: later changes must not be compared with this read
        reply = await self._run(STATE, place, pack_arguments(("describe",)), 1)
        if not isinstance(reply, list) or len(reply) != 7 or reply[0] not in _STATES:
            raise Unreadable(f"session {shorten(session)}: unexpected description {str(reply)[:100]}")
        state, last, created, updated, metadata, annotated, floor = reply
        assert isinstance(state, bytes)
        position = _number(last)
        if position < place.known.still(told) and await self._has_lost(session, place, told, position):
            position = told[0]
        live = _STATES[state] is SessionState.LIVE
        kept = metadata if live and isinstance(metadata, bytes) else None
        if live and kept is None and _number(annotated) > _number(floor):
            raise Unreadable(
                f"session {shorten(session)}: its metadata is gone: deleted by hand, or lost by the engine"
            )
        return Description(
            session,
            _STATES[state],
            position,
            _seconds(created),
            _seconds(updated),
            metadata_of(session, kept),
        )

    async def find(self, session: str, message_id: str) -> Stored | None:
        """See `recollect.store.Findable`. The engine scans the session's list; there is no index."""
        key, needle = session_key(session), needle_of(message_id)
        self._check_open(EngineUnavailable)
        place = self._places.of(key)
        timeout_s = self._options.timeout_s
        deadline = time.monotonic() + timeout_s
        begin: int | bytes = b""
        floors = set[bytes]()
        while begin != -1:
            reply = await self._run(FIND, place, pack_arguments((needle or b"", begin)), 2)
            match reply:
                case [int(following), list(elements), bytes(floor)]:
                    found = found_in(_placed(elements), message_id)
                    if found is not None:
                        return found
                    begin = following
                    floors.add(floor)
                case _:
                    raise Unreadable(f"session {shorten(session)}: unexpected reply {str(reply)[:200]}")
            if len(floors) > 1:  # all were replaced: it may have moved from what was still to be seen
                begin, floors = b"", set()
                if time.monotonic() > deadline:
                    raise too_long(timeout_s)
        if place.known.last:
            await self._read(session, place, 0, None)  # notices that the engine was wiped
        return None

    async def sessions(
        self, *, prefix: str | None = None, updated_after: float | None = None
    ) -> AsyncIterator[str]:
        """See `recollect.store.Listable`. When ordered by change, all names are read before the first is yielded."""
        start = prefix_key(prefix)
        moment = None if updated_after is None else checked_updated_after(updated_after)
        self._check_open(EngineUnavailable)
        with contextlib.closing(SeenSessions()) as listing:
            async for names in self._servers.scan("m", start):
                keys = listing.unseen(map(self._address.session_key, names))
                if moment is None:
                    for session in listed(keys):
                        yield session
                elif keys:
                    listing.changed(keys, await self._updated(keys))
            await self._servers.check_all()  # nothing in the names shows that others are gone
            if moment is not None:
                async for keys in listing.latest_first(moment):
                    for session in listed(keys):
                        yield session

    # ---- how

    def _check_one_slot(self, places: Sequence[Place]) -> None:
        """Before anything is sent: if the connection broke then, nobody would know that it is refused."""
        if not self._servers.spans_slots and len({place.slot for place in places}) > 1:
            raise slots_differ()

    async def _submit(self, write: QueuedWrite, place: Place) -> Reply:
        """The engine's answer. After a script was stopped half-way, no other is sent until the user has its rights
        back: each would leave another half behind."""
        if self._denied.is_set():
            await self._check_allowed_again()
        reply = await self._servers.submit(write, place.slot)
        self._note_denial(reply)
        return reply

    def _note_denial(self, reply: Reply) -> None:
        if isinstance(reply, ReplyError) and was_denied(reply):
            self._denied.set()

    async def _updated(self, keys: list[bytes]) -> list[float]:
        counters = [self._address.session_keys(key)[1] for key in keys]
        requests = [(slot_of(counter.encode()), pack("HGET", counter, "updated")) for counter in counters]
        return [_seconds(reply) or 0.0 for reply in await self._servers.ask_each(requests)]

    def _common(self, change: SessionChange, place: Place, behind: bytes, expect: int | None) -> bytes:
        """The arguments that every change's script takes after the store's options."""
        return pack_arguments(
            (
                claimed(expect, place.known),
                change.turn or b"",
                b"%d" % place.known.last,
                behind,
                change.fingerprint or b"",
            )
        )

    async def _changed(
        self, script: Script, change: SessionChange, rest: list[bytes]
    ) -> tuple[Reply, QueuedWrite]:
        """The script's answer, once the engine knows as much of the session as this store does."""
        self._check_open(NotWritten)
        behind = b"ask"
        while True:
            place = self._places.of(change.key)
            told = place.known.told
            common = self._common(change, place, behind, change.expect)
            given = self._append_options + common + pack_arguments(rest)
            write = QueuedWrite(script, (place.keys,), given, 8 + len(rest))
            reply = await self._submit(write, place)
            if not (isinstance(reply, list) and reply[0] == b"behind"):
                return reply, write
            behind = await self._lost(change.session, place, told, reply[1])

    async def _lost(self, session: str, place: Place, told: Told, found: Reply) -> bytes:
        """How to send the change again: to go on after what was lost, or to ask, since something else is known now."""
        try:
            return b"go on" if await self._has_lost(session, place, told, found) else b"ask"
        except EngineUnavailable as error:
            raise NotWritten(f"{error}; safe to retry") from error

    def _receipt(
        self, change: SessionChange, reply: Reply, write: QueuedWrite, session: str | None = None
    ) -> Receipt:
        session = session or change.session
        place = self._places.of(session_key(session))
        match reply:
            case [b"done", int(first), int(last)]:
                pass
            case _:
                first, last = earlier_turn(change, reply, place.known)
                check_marked(write, reply)
        return self._acknowledged(session, place, first, last, write)

    def _acknowledged(self, session: str, place: Place, first: int, last: int, write: QueuedWrite) -> Receipt:
        if write.shortfall is not None:
            raise OutcomeUnknown(f"written, but {write.shortfall}")
        place.known.note(last, write.sent_at)
        if self._witness is not None and not place.known.erased:
            self._witness.note(session, last, write.sent_at)
        return Receipt(session, first, last, write.plan.durability, write.plan.replicas)


def _appended(append: Append, reply: Reply, write: QueuedWrite, known: Known) -> tuple[int, int]:
    if isinstance(reply, int):
        return reply - len(append.records) + 1, reply
    first, last = earlier_turn(append, reply, known)
    check_marked(write, reply)
    return first, last


def _placed(elements: list[Reply]) -> list[tuple[int, bytes]]:
    """Sequences and records, oldest first; tombstones hold no message, and decode to none."""
    placed: list[tuple[int, bytes]] = []
    for element in reversed(elements):
        head, separator, record = element.partition(b" ") if isinstance(element, bytes) else (b"", b"", b"")
        if separator and is_number(head):
            placed.append((int(head), record))
    return placed


def _number(field: Reply) -> int:
    """A field of the counter; 0 if it is not there."""
    return int(field) if isinstance(field, bytes) and is_number(field) else 0


def _seconds(milliseconds: Reply) -> float | None:
    if isinstance(milliseconds, bytes) and is_number(milliseconds):
        return int(milliseconds) / 1000
    return None


def check_marked(write: QueuedWrite, reply: Reply) -> None:
    """For a turn stored before: checks that repeating it made a write for WAIT and WAITAOF to cover."""
    if write.plan.count and isinstance(reply, list) and reply[2] != 1:
        raise OutcomeUnknown(
            "stored before, but the engine takes no writes now, so there is no telling what it would survive"
        )


def claimed(expect: int | None, known: Known) -> bytes:
    """What a script compares with the session's position."""
    position = known.claimed(expect)
    return b"" if position is None else b"%d" % position


def earlier_turn(change: SessionChange, reply: Reply, known: Known) -> tuple[int, int]:
    """First and last of a turn stored before, or the error that the reply means."""
    if isinstance(reply, ReplyError):
        raise write_refused(reply)
    if isinstance(reply, list) and reply[0] == b"retry" and isinstance(reply[1], bytes):
        if not math.isfinite(float(reply[1])):
            raise NotWritten(
                "the turn's place was changed by something other than recollect; nothing was written"
            )
        place = int(float(reply[1]))
        first = place >> 14
        return first, first + (place & 0x3FFF)
    if isinstance(reply, list) and reply[0] == b"reused":
        raise change.reused()
    if isinstance(reply, list) and reply[0] == b"conflict" and isinstance(reply[1], int):
        known.meet()
        raise change.conflict(reply[1])
    if isinstance(reply, list) and reply[0] == b"full":
        raise Refused(f"session {shorten(change.session)}: full after {SEQUENCE_MAX:,} messages")
    raise OutcomeUnknown(f"unexpected reply {str(reply)[:200]}")
