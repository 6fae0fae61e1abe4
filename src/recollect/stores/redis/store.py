"""Memory in Redis or Valkey: ``redis://``, ``rediss://``, ``unix://``, ``valkey://``.

A session is a list of records, a small hash that counts, a sorted set of turn ids and a hash of their fingerprints, in
one cluster slot. An append is one server-side script, so it is atomic, exactly-once and ordered in one round trip;
appends that arrive together share the round trip (`commit`). A read is one transaction, or one script if the engine
has to decide something: one snapshot, with its limit applied in the engine.

A history never gets shorter silently. Each element of the list carries its sequence, and the counter has no expiry:
messages that were evicted, deleted by hand or lost with the engine's last second leave a hole that reads as one
`Damaged` item. The store also remembers the last sequence it acknowledged in each session it used lately: an engine
that knows less has lost something; if it does not know the store's identity either, it was wiped: `StoreReplaced`.

Where a request goes is the business of `servers`: one server, a cluster, or whoever sentinels name.
"""

import asyncio
import copy
import functools
import logging
import threading
import time
from collections.abc import Sequence
from typing import Self

from recollect.appending import Append, Said, checked_append, checked_window, session_key
from recollect.erasure import Erasure, erasure, trace_of
from recollect.errors import (
    CannotOpen,
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    Refused,
    StoreClosed,
    StoreReplaced,
    Unreadable,
    advising,
    shorten,
)
from recollect.known import Told, ended_by
from recollect.near import NearCalls
from recollect.owner import Owner, to_its_end
from recollect.slices import finished, too_long
from recollect.store import Durability, Options, Receipt, SessionState, Stored
from recollect.stores.redis.address import Address, parse_address
from recollect.stores.redis.changes import check_marked, claimed, earlier_turn
from recollect.stores.redis.cluster import ClusterServers
from recollect.stores.redis.commit import QueuedWrite
from recollect.stores.redis.elements import doubt, is_number, placing
from recollect.stores.redis.erasing import erase_keys, erased_ago_s, rewrite_files
from recollect.stores.redis.errors import read_refused, write_refused
from recollect.stores.redis.moving import RedisMoving
from recollect.stores.redis.near import NearServer, RedisNear
from recollect.stores.redis.places import Place, Places
from recollect.stores.redis.script import APPEND, READ, STATE, Script
from recollect.stores.redis.sentinel import SentinelServers
from recollect.stores.redis.servers import OneServer, Servers
from recollect.stores.redis.wire import Reply, ReplyError, pack, pack_arguments, pack_bytes
from recollect.tombstone import newest
from recollect.witness import Witness

_STATES = {state.value.encode(): state for state in SessionState}
SCAN_COUNT = 1000
PROBE_TIMEOUT_S = 6.0
PROBE_LIFE_MS = 10_000
LENDING_POOL_LEAST = 3
"""With fewer connections, one on loan would be missed: by a read while a write waits for its fsync."""

_PLAIN = b"$1\r\n2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
"""The short form of an append's arguments, packed: see `lua/appends.lua`."""

_logger = logging.getLogger("recollect")


class RedisStore(RedisMoving):
    """Opened by `recollect.open_store`. One event loop, any number of tasks."""

    def __init__(self, address: Address, options: Options) -> None:
        self._address = address
        self._options = options
        self._servers = _servers_at(address, options)
        self._identity: str | None = None
        self._witness: Witness | None = None
        self._closed = False
        self._denied = threading.Event()
        """The last change was stopped because the user may no longer run one of its commands."""
        self._owner = Owner()
        self._places = Places(address)
        ttl_ms = None if options.ttl is None else max(1, round(options.ttl.total_seconds() * 1000))
        self._option_values = (
            b"%d" % options.turns_kept,
            b"" if ttl_ms is None else b"%d" % ttl_ms,
            options.refresh.encode(),
        )
        self._append_options = pack_arguments(self._option_values)
        self._append_script = APPEND.with_options(self._option_values)
        self._read_ttl_ms = b"%d" % ttl_ms if ttl_ms is not None and options.refresh == "read" else b""

    @classmethod
    async def open(cls, url: str, options: Options) -> Self:
        """Opens the memory at the address and checks that what was asked for can be kept; `open_store` calls this."""
        if options.read_url is not None:
            raise Refused("read_url: PostgreSQL only; a Redis replica may lag without telling")
        store = cls(parse_address(url), options)
        try:
            await store._start()
        except BaseException:
            await store._servers.close()
            raise
        return store

    # ---- MemoryStore

    async def append(
        self, session: str, messages: Sequence[Said], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """Stores the messages as one turn, whole or not at all, and says what the write survives."""
        append = checked_append(session, messages, turn, expect)
        self._check_open(NotWritten)
        if self._denied.is_set():
            await self._check_allowed_again()
        behind = b"ask"
        while True:
            place = self._places.of(append.key)
            told, write = place.known.told, self._append_write(append, place, behind)
            reply = await self._servers.submit(write, place.slot)
            if not (isinstance(reply, list) and reply[0] == b"behind"):
                break
            behind = await self._lost(session, place, told, reply[1])
        if isinstance(reply, int):
            first, last = reply - len(append.records) + 1, reply
        else:
            self._note_denial(reply)
            first, last = earlier_turn(append, reply, place.known)
            check_marked(write, reply)
        if write.shortfall is not None:
            raise OutcomeUnknown(f"written, but {write.shortfall}")
        place.known.note(last, write.sent_at)
        if self._witness is not None and not place.known.erased:
            self._witness.note(session, last, write.sent_at)
        return Receipt(session, first, last, write.plan.durability, write.plan.replicas)

    async def history(
        self, session: str, *, last: int | None = None, after: int | None = None
    ) -> list[Stored]:
        """The session's live messages in order: all, the `last` n, or those with a sequence above `after`."""
        last, after = checked_window(last, after)
        key = session_key(session)
        self._check_open(EngineUnavailable)
        if last == 0:
            return []
        place = self._places.of(key)
        deadline = time.monotonic() + self._options.timeout_s
        snapshot = None
        if after is None and not self._read_ttl_ms:
            snapshot = await self._snapshot(place, last, deadline)
        if snapshot is not None:
            (elements, first, end), tombstones = snapshot, 0
        else:
            elements, first, end, tombstones = await self._read(session, place, last, after, deadline)
        stored: list[Stored] = []
        if not await finished(placing(stored, elements, first, end, tombstones), deadline):
            raise too_long(self._options.timeout_s)
        if doubtful := doubt(elements, end, tombstones):
            stored.append(doubtful)
        return newest(stored, last)

    async def _erase(self, session: str, key: bytes, expect: int | None) -> Erasure:
        if self._witness is not None:
            await self._witness.erase(session)
        place = self._places.passing(key)
        ask = functools.partial(self._servers.ask, place.slot)
        with self._places.erasing(key):
            await erase_keys(self._servers, self._address, trace_of(self.identity, key), key, expect)
        erased = await rewrite_files(ask)
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
        await self._servers.close()
        if self._witness is not None:
            await self._witness.close()

    # ---- Expiring, Listable

    async def state(self, session: str) -> SessionState:
        """Whether the session is live, expired, forgotten, or never existed."""
        key = session_key(session)
        self._check_open(EngineUnavailable)
        place = self._places.of(key)
        told = place.known.told
        reply = await self._run(STATE, place, pack_arguments(("look",)), 1)
        if reply == b"absent" and place.known.still(told) and await self._has_lost(session, place, told, 0):
            return SessionState.LIVE  # but lost: reads show that
        if not isinstance(reply, bytes) or reply not in _STATES:
            raise Unreadable(f"session {shorten(session)}: unexpected state {str(reply)[:100]}")
        return _STATES[reply]

    async def sweep(self) -> int:
        """The engine frees expired messages by itself; this updates the sessions' counters and returns how many."""
        self._check_open(EngineUnavailable)
        swept = 0
        async for names in self._servers.scan("c", b""):
            for reply in await self._swept(names) if names else ():
                if isinstance(reply, ReplyError):
                    with advising("sweep again"):
                        raise write_refused(reply)
                swept += reply == b"swept"
        return swept

    async def _swept(self, names: list[bytes]) -> list[Reply]:
        places = [self._places.passing(self._address.session_key(name)) for name in names]
        sweep = pack_arguments(("sweep",))
        requests = [(place.slot, STATE.call(place.keys, sweep, 1)) for place in places]
        replies = await self._servers.ask_each(requests)
        unknown = [
            index
            for index, reply in enumerate(replies)
            if isinstance(reply, ReplyError) and reply.code == "NOSCRIPT"
        ]
        sources = [
            (places[index].slot, STATE.call(places[index].keys, sweep, 1, by_source=True))
            for index in unknown
        ]
        for index, reply in zip(unknown, await self._servers.ask_each(sources), strict=True):
            replies[index] = reply
        return replies

    # ---- what it is

    async def near(self) -> NearCalls | None:
        """See `recollect.near.Lending`: for one server, without TLS, and if the pool has wires to spare."""
        servers, options = self._servers, self._options
        if (
            not isinstance(servers, OneServer)
            or self._address.has_tls
            or options.pool_size < LENDING_POOL_LEAST
        ):
            return None
        store = copy.copy(self)
        store._owner = Owner(any_loop=True)
        server = NearServer(servers, asyncio.get_running_loop(), options.timeout_s)
        store._servers = server
        return RedisNear(store, server)

    @property
    def identity(self) -> str:
        """The UUID the store was given when it was first opened: another one means another memory."""
        assert self._identity is not None
        return self._identity

    @property
    def durability(self) -> Durability:
        """The least that every receipt of this store promises."""
        return self._servers.plan.durability

    @property
    def notice(self) -> str | None:
        """What could be lost with the engine's settings, or None; logged once at open."""
        return self._servers.plan.notice

    # ---- opening and connecting

    async def _start(self) -> None:
        self._identity = await self._servers.open()
        if self._options.witness is not None:
            self._witness = await Witness.check(self._options, self._identity, self.position)

    async def _check_allowed_again(self) -> None:
        """After missing rights stopped a change half-way: checks that they are back."""
        try:
            await self._servers.check_rights()
        except CannotOpen as error:
            raise NotWritten(f"{error}; safe to retry once the user may do this") from error
        self._denied.clear()

    async def _has_lost(self, session: str, place: Place, told: Told, found: Reply) -> bool:
        """Whether messages are lost, now that the engine knows less of the session than was told. If the session was
        erased, none are, and what was told counts no more. Raises if it is another engine."""
        await self._servers.check_same(place.slot)
        if place.known.erased or await self._was_erased(session, place, told):
            return False
        if place.known.lost_told < place.known.last:
            place.known.lost_told = place.known.last
            _logger.error(
                "session %s: the engine lost acknowledged messages: it is at sequence %s, it was at %d",
                shorten(session),
                found,
                place.known.last,
            )
        return True

    async def _was_erased(self, session: str, place: Place, told: Told) -> bool:
        """By another process, after all that was told."""
        key = session_key(session)
        trace = trace_of(self.identity, key)
        ago_s = await erased_ago_s(self._servers, self._address, trace, place.slot)
        if ago_s is None or not ended_by(ago_s, told):
            return False
        self._places.erased(key, place, told)
        if self._witness is not None:
            await self._witness.erase(session)
        return True

    def _check_open(self, kind: type[RecollectError]) -> None:
        self._owner.check()
        if self._servers.replaced is not None:
            raise StoreReplaced(self._servers.replaced)
        if self._closed:
            raise StoreClosed

    # ---- asking the engine

    def _append_write(self, append: Append, place: Place, behind: bytes) -> QueuedWrite:
        if append.turn is None and append.expect is None and len(append.records) == 1 and behind == b"ask":
            (record,), known = append.records, b"%d" % place.known.last
            arguments, count = _PLAIN % (len(known), known, len(record), record), 3
        else:
            given = self._append_arguments(append, place, behind)
            arguments, count = pack_bytes((b"%d" % len(given), *given)), 1 + len(given)
        return QueuedWrite(self._append_script, (place.keys,), arguments, count)

    def _append_arguments(self, append: Append, place: Place, behind: bytes) -> tuple[bytes, ...]:
        return (
            claimed(append.expect, place.known),
            append.turn or b"",
            b"%d" % place.known.last,
            behind,
            append.fingerprint or b"",
            *append.records,
        )

    async def _snapshot(
        self, place: Place, last: int | None, deadline: float
    ) -> tuple[list[bytes], int, int] | None:
        """The same as `_read` but faster, without a script; None unless everything is as it should be."""
        request = place.snapshot + pack_arguments((0 if last is None else -last, -1)) + pack("EXEC")
        *_, reply = await self._servers.ask(place.slot, request, 5, deadline)
        match reply:
            case [[None, None, None], 0, []] if not place.known.last:
                return [], 1, 0
            case [[bytes(end_text), floor_text, None | b"0"], int(length), list(elements)] if is_number(
                end_text
            ):
                end = int(end_text)
                floor = int(floor_text) if isinstance(floor_text, bytes) and is_number(floor_text) else 0
                if end >= place.known.last and length == end - floor:
                    first = floor + 1 if last is None else max(floor, end - last) + 1
                    return [element for element in elements if isinstance(element, bytes)], first, end
        return None

    async def _read(
        self,
        session: str,
        place: Place,
        last: int | None,
        after: int | None,
        deadline: float | None = None,
    ) -> tuple[list[bytes], int, int, int]:
        """The elements of the window, its first and last sequence, and how many tombstones there must be (`doubt`)."""
        window = (b"" if last is None else b"%d" % last, b"" if after is None else b"%d" % after)
        behind = b"ask"
        while True:
            told = place.known.told
            arguments = (*window, self._read_ttl_ms, b"%d" % told[0], behind)
            reply = await self._run(READ, place, pack_arguments(arguments), 5, deadline)
            match reply:
                case [int(end), int(first), list(elements), int(tombstones)]:
                    found = [element for element in elements if isinstance(element, bytes)]
                    return found, first, end, tombstones
                case [b"behind", found]:
                    behind = b"go on" if await self._has_lost(session, place, told, found) else b"ask"
                case _:
                    raise Unreadable(f"session {shorten(session)}: unexpected reply {str(reply)[:200]}")

    async def _run(
        self, script: Script, place: Place, rest: bytes, count: int, deadline: float | None = None
    ) -> Reply:
        """Runs a script that is safe to run twice; `rest` holds its `count` arguments."""
        [reply] = await self._servers.ask(place.slot, script.call(place.keys, rest, count), 1, deadline)
        if isinstance(reply, ReplyError) and reply.code == "NOSCRIPT":
            [reply] = await self._servers.ask(
                place.slot, script.call(place.keys, rest, count, by_source=True), 1, deadline
            )
        if isinstance(reply, ReplyError):
            raise read_refused(reply)
        return reply


def _servers_at(address: Address, options: Options) -> Servers:
    if address.kind == "cluster":
        return ClusterServers(address, options)
    if address.kind == "sentinel":
        return SentinelServers(address, options)
    return OneServer(address, options)
