"""Memory in Redis or Valkey: ``redis://``, ``rediss://``, ``unix://``, ``valkey://``.

A session is a list of records, a small hash that counts, a sorted set of turn ids and a hash of their fingerprints, in
one cluster slot. An append is one server-side script, so it is atomic, exactly-once and ordered in one round trip;
appends that arrive together share the round trip (`commit`). A read is one transaction, or one script if the engine
has to decide something: one snapshot, with its limit applied in the engine.

A history never gets shorter silently. Each element of the list carries its sequence, and the counter has no expiry:
messages that were evicted, deleted by hand or lost with the engine's last second leave a hole that reads as one
`Damaged` item. The store also remembers the last sequence it acknowledged in each session it used lately: an engine
that knows less has lost something; if it does not know the store's identity either, it was wiped: `StoreReplaced`.

Not supported: Redis Cluster or Sentinel as such (one address, one primary), although the keys are ready for a cluster.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Self

from recollect.appending import Append, Said, checked_append, checked_window, session_key
from recollect.erasure import Erasure, erasure
from recollect.errors import (
    CannotOpen,
    CredentialsRefused,
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    Refused,
    StoreClosed,
    StoreReplaced,
    Unreadable,
    shorten,
)
from recollect.owner import Owner
from recollect.slices import finished, too_long
from recollect.store import Durability, Options, Receipt, SessionState, Stored
from recollect.stores.redis.address import Address, parse_address
from recollect.stores.redis.changes import RedisChanges, check_marked, earlier_turn
from recollect.stores.redis.commit import Commit, QueuedWrite
from recollect.stores.redis.elements import is_number, placing
from recollect.stores.redis.erasing import rewrite_files
from recollect.stores.redis.errors import not_connected, read_refused, write_refused
from recollect.stores.redis.fsync import FsyncWatch
from recollect.stores.redis.places import Place, Places
from recollect.stores.redis.pool import NoFreeConnection, RedisPool
from recollect.stores.redis.rights import Rights
from recollect.stores.redis.script import APPEND, READ, STATE, Script
from recollect.stores.redis.settings import (
    QUESTIONS,
    QUESTIONS_COUNT,
    DurabilityPlan,
    answers_waitaof_early,
    check_has_every_slot,
    plan,
    read_settings,
)
from recollect.stores.redis.wire import Reply, ReplyError, Wire, WireLost, connect, pack, pack_arguments
from recollect.tombstone import newest
from recollect.witness import Witness

_STATES = {state.value.encode(): state for state in SessionState}
SCAN_COUNT = 1000
PROBE_TIMEOUT_S = 6.0
PROBE_LIFE_MS = 10_000

_logger = logging.getLogger("recollect")


class RedisStore(RedisChanges):
    """Opened by `recollect.open_store`. One event loop, any number of tasks."""

    def __init__(self, address: Address, options: Options) -> None:
        self._address = address
        self._options = options
        self._pool = RedisPool(self._connect, size=options.pool_size, timeout_s=options.timeout_s)
        self._commit: Commit
        self._plan: DurabilityPlan | None = None
        self._identity: str | None = None
        self._probe = pack("SET", f"{address.prefix}:probe", "1", "PX", PROBE_LIFE_MS)
        self._watch = FsyncWatch(self._ask, self._probe)
        self._early: dict[str, bool] = {}
        """Whether the engine answers WAITAOF early, for each build."""
        self._witness: Witness | None = None
        self._replaced: str | None = None
        self._closed = False
        self._denied = False
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
            await store._pool.close()
            raise
        return store

    # ---- MemoryStore

    async def append(
        self, session: str, messages: Sequence[Said], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """Stores the messages as one turn, whole or not at all, and says what the write survives."""
        append = checked_append(session, messages, turn, expect)
        self._check_open(NotWritten)
        place = self._places.of(append.key)
        write = self._append_write(append, place, b"ask")
        reply = await self._submit(write)
        if isinstance(reply, list) and reply[0] == b"behind":
            try:
                await self._check_not_replaced(session, place, reply[1])
            except EngineUnavailable as error:
                raise NotWritten(f"{error}; safe to retry") from error
            write = self._append_write(append, place, b"go on")
            reply = await self._submit(write)
        if isinstance(reply, int):
            first, last = reply - len(append.records) + 1, reply
        else:
            first, last = earlier_turn(append, reply)
            check_marked(write, reply)
        if write.shortfall is not None:
            raise OutcomeUnknown(f"written, but {write.shortfall}; retry with the same turn id")
        place.known.note(last)
        if self._witness is not None:
            self._witness.note(session, last)
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
        found = None
        if after is None and not self._read_ttl_ms:
            found = await self._snapshot(place, last, deadline)
        if found is None:
            found = await self._read(session, place, last, after, deadline)
        stored: list[Stored] = []
        if not await finished(placing(stored, *found), deadline):
            raise too_long(self._options.timeout_s)
        return newest(stored, last)

    async def _erase(self, session: str, key: bytes) -> Erasure:
        [reply] = await self._ask(pack("UNLINK", *self._address.session_keys(key)), 1)
        if isinstance(reply, ReplyError):
            raise write_refused(reply)
        self._places.of(key).known.last = 0
        erased = await rewrite_files(self._ask)
        return erasure(
            session, *erased, None if self._witness is None else await self._witness.erase(session)
        )

    async def close(self) -> None:
        """In a fork this does nothing: the connections belong to the parent."""
        if self._closed or self._owner.forked:
            return
        self._closed = True
        await self._commit.drain()
        await self._watch.close()
        await self._pool.close()
        if self._witness is not None:
            await self._witness.close()

    # ---- Expiring, Listable

    async def state(self, session: str) -> SessionState:
        """Whether the session is live, expired, forgotten, or never existed."""
        key = session_key(session)
        self._check_open(EngineUnavailable)
        place = self._places.of(key)
        reply = await self._run(STATE, place.keys + pack_arguments(("look",)), 1)
        if reply == b"absent" and place.known.last:
            await self._check_not_replaced(session, place, 0)
            return SessionState.LIVE  # but lost: reads show that
        if not isinstance(reply, bytes) or reply not in _STATES:
            raise Unreadable(f"session {shorten(session)}: unexpected state {str(reply)[:100]}")
        return _STATES[reply]

    async def sweep(self) -> int:
        """The engine frees expired messages by itself; this updates the sessions' counters and returns how many."""
        self._check_open(EngineUnavailable)
        swept = 0
        async for names in self._scan("c"):
            if not names:
                continue
            keys = [self._address.session_keys(self._address.session_key(name)) for name in names]
            bodies = [pack_arguments((*session, "sweep")) for session in keys]
            # The first call carries the source, so that the engine knows the digest that the others use.
            requests = [STATE.by_source(bodies[0], 1), *(STATE.by_digest(body, 1) for body in bodies[1:])]
            replies = await self._ask(b"".join(requests), len(requests))
            for reply in replies:
                if isinstance(reply, ReplyError):
                    raise write_refused(reply)
            swept += replies.count(b"swept")
        return swept

    # ---- what it is

    @property
    def identity(self) -> str:
        """The UUID the store was given when it was first opened: another one means another memory."""
        assert self._identity is not None
        return self._identity

    @property
    def durability(self) -> Durability:
        """The least that every receipt of this store promises."""
        return self._commit.plan.durability

    @property
    def notice(self) -> str | None:
        """What could be lost with the engine's settings, or None; logged once at open."""
        return self._commit.plan.notice

    # ---- opening and connecting

    async def _start(self) -> None:
        wire = await self._connect()
        assert self._plan is not None
        self._commit = Commit(
            self._pool,
            self._plan,
            self._watch,
            timeout_s=self._options.timeout_s,
            pool_size=self._options.pool_size,
        )
        self._pool.adopt(wire)
        await self._check_rights(self._plan)
        name = self._address.identity_key
        _, identity, *_ = await self._ask(
            pack("SET", name, str(uuid.uuid4()), "NX") + pack("GET", name) + self._plan.request,
            2 + self._plan.count,
        )
        if not isinstance(identity, bytes):
            raise (
                read_refused(identity) if isinstance(identity, ReplyError) else Unreadable(f"{name} is gone")
            )
        try:
            self._identity = identity.decode()
        except UnicodeDecodeError:
            raise Unreadable(f"{name} holds {str(identity)[:100]}, which is no identity of a store") from None
        if self._options.witness is not None:
            self._witness = await Witness.check(self._options, self._identity, self.position)

    async def _check_rights(self, plan: DurabilityPlan) -> None:
        rights = Rights(self._address.prefix, plan)
        rights.check(await self._ask(rights.request, rights.count), self._address.shown)

    async def _check_allowed_again(self) -> None:
        """After missing rights stopped a change half-way: checks that they are back."""
        try:
            await self._check_rights(self._commit.plan)
        except CannotOpen as error:
            raise NotWritten(f"{error}; safe to retry once the user may do this") from error
        self._denied = False

    async def _connect(self) -> Wire:
        """A wire to an engine that is still this store's, with settings that still give what was asked for."""
        timeout_s = self._options.timeout_s
        try:
            connection = self._address.connection(timeout_s)
        except TypeError as error:
            raise Refused(f"not a Redis address: {error}") from error
        try:
            wire = await connect(connection)
        except Exception as error:
            await asyncio.sleep(0)  # a refusal is immediate: let others run if the caller keeps retrying
            raise not_connected(error, self._address.shown) from error
        try:
            async with asyncio.timeout(timeout_s):
                request = QUESTIONS + pack("GET", self._address.identity_key)
                *answers, identity = await wire.replies(request, QUESTIONS_COUNT + 1)
            told_later = ("MOVED", "CLUSTERDOWN", *(["NOPERM"] if self._identity is None else []))
            if isinstance(identity, ReplyError) and identity.code == "NOAUTH":
                raise CredentialsRefused(self._address.shown, identity.text)
            if isinstance(identity, ReplyError) and identity.code not in told_later:
                raise read_refused(identity)  # still loading, or no longer allowed
            settings = read_settings(answers, self._address.shown)
            if settings.is_cluster_node:
                async with asyncio.timeout(timeout_s):
                    await check_has_every_slot(wire, self._address.shown)
            if self._identity is not None:  # an AOF's first rewrite happens once; later ones look the same
                settings = replace(settings, aof_begins=False)
            planned = plan(settings, self._options, self._address.shown)
            if planned.waits_for_disk:
                if settings.build not in self._early:
                    async with asyncio.timeout(max(timeout_s, PROBE_TIMEOUT_S)):
                        self._early[settings.build] = await answers_waitaof_early(wire, self._probe)
                planned = replace(planned, watches=self._early[settings.build])
            wire.run = settings.run
            if self._identity is not None and identity != self._identity.encode():
                raise self._replaced_by(identity)
        except (WireLost, TimeoutError) as error:
            wire.abort()
            raise not_connected(error, self._address.shown) from error
        except BaseException:
            wire.abort()
            raise
        self._adopt(planned)
        return wire

    def _adopt(self, planned: DurabilityPlan) -> None:
        if planned == self._plan:
            return
        if planned.notice is not None:
            _logger.warning("%s: %s", self._address.shown, planned.notice)
        if self._plan is not None:
            self._commit.plan = planned
        self._plan = planned

    def _replaced_by(self, identity: Reply) -> StoreReplaced:
        found = identity.decode() if isinstance(identity, bytes) else "none"
        self._replaced = (
            f"{self._address.shown} is not the store it was: its identity was {self._identity}, now it is {found}. "
            "It was wiped, or replaced by another one. Open it again if that is intended"
        )
        return StoreReplaced(self._replaced)

    async def _check_not_replaced(self, session: str, place: Place, found: Reply) -> None:
        """The engine knows less of the session than it acknowledged. Raises if it is another engine."""
        [identity] = await self._ask(pack("GET", self._address.identity_key), 1)
        if isinstance(identity, ReplyError):
            raise read_refused(identity)
        if identity != self.identity.encode():
            raise self._replaced_by(identity)
        if place.known.lost_told < place.known.last:
            place.known.lost_told = place.known.last
            _logger.error(
                "session %s: the engine lost acknowledged messages: it is at sequence %s, it was at %d",
                shorten(session),
                found,
                place.known.last,
            )

    def _check_open(self, kind: type[RecollectError]) -> None:
        self._owner.check()
        if self._replaced is not None:
            raise StoreReplaced(self._replaced)
        if self._closed:
            raise StoreClosed

    # ---- asking the engine

    def _append_write(self, append: Append, place: Place, behind: bytes) -> QueuedWrite:
        arguments = pack_arguments(self._append_arguments(append, place, behind))
        return QueuedWrite(APPEND, place.keys + self._append_options + arguments, 8 + len(append.records))

    def _append_arguments(self, append: Append, place: Place, behind: bytes) -> tuple[bytes, ...]:
        return (
            b"" if append.expect is None else b"%d" % append.expect,
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
        *_, reply = await self._ask(request, 5, deadline)
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
    ) -> tuple[list[bytes], int, int]:
        """The elements of the window, and its first and last sequence."""
        window = (b"" if last is None else b"%d" % last, b"" if after is None else b"%d" % after)
        for behind in (b"ask", b"go on"):
            arguments = (*window, self._read_ttl_ms, b"%d" % place.known.last, behind)
            reply = await self._run(READ, place.keys + pack_arguments(arguments), 5, deadline)
            match reply:
                case [int(end), int(first), list(elements)]:
                    return [element for element in elements if isinstance(element, bytes)], first, end
                case [b"behind", found]:
                    await self._check_not_replaced(session, place, found)
        raise Unreadable(f"session {shorten(session)}: unexpected reply {str(reply)[:200]}")

    async def _run(self, script: Script, body: bytes, count: int, deadline: float | None = None) -> Reply:
        """Runs a script that is safe to run twice."""
        [reply] = await self._ask(script.by_digest(body, count), 1, deadline)
        if isinstance(reply, ReplyError) and reply.code == "NOSCRIPT":
            [reply] = await self._ask(script.by_source(body, count), 1, deadline)
        if isinstance(reply, ReplyError):
            raise read_refused(reply)
        return reply

    async def _ask(self, request: bytes, count: int, deadline: float | None = None) -> list[Reply]:
        """Replies to a request that is safe to repeat: tried again on a new connection if the first one breaks."""
        left_s = self._options.timeout_s if deadline is None else deadline - time.monotonic()
        try:
            async with asyncio.timeout(left_s):
                for attempt in (1, 2):
                    wire = self._pool.take() or await self._pool.wait()
                    try:
                        return await wire.replies(request, count)
                    except WireLost as error:
                        if attempt == 2:
                            raise not_connected(error, self._address.shown) from error
                    finally:
                        self._pool.give_back(wire)
        except TimeoutError as error:
            raise EngineUnavailable(
                f"{self._address.shown}: no answer within {self._options.timeout_s:g} s"
            ) from error
        except NoFreeConnection as error:
            raise EngineUnavailable(str(error)) from error
        raise AssertionError("unreachable")

    async def _scan(self, kind: str, start: bytes = b"") -> AsyncIterator[list[bytes]]:
        cursor: Reply = b"0"
        while True:
            assert isinstance(cursor, bytes)
            request = pack("SCAN", cursor, "MATCH", self._address.pattern(kind, start), "COUNT", SCAN_COUNT)
            [reply] = await self._ask(request, 1)
            if not isinstance(reply, list) or not isinstance(reply[1], list):
                raise read_refused(reply) if isinstance(reply, ReplyError) else Unreadable(f"SCAN: {reply!r}")
            cursor, names = reply[0], reply[1]
            yield [name for name in names if isinstance(name, bytes)]
            if cursor == b"0":
                return
