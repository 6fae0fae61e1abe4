"""Redis and Valkey, as an audit reads them: one connection, SCAN for the keys, and read-only transactions.

A list has no stable cursor: a retraction moves everything behind it. But its elements are ordered by sequence, so if a
piece does not begin where the last one ended, the audit looks earlier in the list.

A user with ``+@read +@connection +@transaction +info +time`` is enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Self

from redis.exceptions import AuthenticationError, RedisError

from recollect.audit.finding import AuditFinding
from recollect.audit.session_reading import SessionPiece, lost_turns, metadata_findings
from recollect.audit.source import BATCH, CLOCK_SLACK_S, PIECE, EngineFacts, SessionBatch, SessionRef, name_of
from recollect.errors import CredentialsRefused, EngineUnavailable, Unreadable
from recollect.stores.redis.address import Address, parse_address
from recollect.stores.redis.elements import is_number
from recollect.stores.redis.errors import is_sentinel, sentinel_refused
from recollect.stores.redis.settings import has_every_slot, one_node
from recollect.stores.redis.wire import Reply, ReplyError, Wire, WireLost, connect, pack
from recollect.tombstone import run_first

EXPIRY_SLACK_MS = 5_000
"""Tolerance between the counter's expiry and the engine's: a replica has its own clock."""
TURNS_KEPT_MS = 86_400_000
"""How much longer than the messages their turn ids are kept."""
ELSEWHERE = ("MOVED", "ASK", "TRYAGAIN")
_COUNTER = ("last", "floor", "hidden", "runs", "expires", "gone", "created", "updated", "annotated")


class Elsewhere(EngineUnavailable):
    """The session's slot is served by another node of the cluster, or is on its way there."""

    def __init__(self, where: str, reply: ReplyError) -> None:
        super().__init__(f"{where}: {reply.text}")
        self.reply = reply


class Forbidden(EngineUnavailable):
    """The user may not run a command that an audit needs: asking again does not help."""


class RedisAudit:
    engine = "redis"
    shard: str | None = None
    """Named in findings if this is one of several servers."""

    def __init__(self, address: Address, wire: Wire, timeout_s: float) -> None:
        self._address = address
        self._wire = wire
        self._timeout_s = timeout_s
        self._starts: dict[bytes, int] = {}
        """Where to continue in the list of the session being read."""
        self.asking = False
        """The slot that is asked for is still on its way here."""
        self.identity: str | None = None
        self.place = ""
        self.total: int | None = None

    @classmethod
    async def open(cls, url: str, timeout_s: float) -> RedisAudit:
        audit = await cls.connected(parse_address(url), timeout_s)
        await audit.look()
        return audit

    @classmethod
    async def connected(cls, address: Address, timeout_s: float) -> Self:
        """A server, of which nothing is known yet."""
        try:
            wire = await connect(address.connection(), timeout_s)
        except AuthenticationError as error:
            raise CredentialsRefused(address.shown, str(error)) from None
        except (RedisError, OSError, WireLost, TimeoutError) as error:
            raise EngineUnavailable(f"{address.shown}: {str(error) or type(error).__name__}") from None
        return cls(address, wire, timeout_s)

    async def look(self) -> None:
        """Refuses what is not a whole memory, and learns whose it is."""
        try:
            await self._look()
            facts = await self.facts()
        except BaseException:
            await self.close()
            raise
        self.identity, self.place = facts.identity, facts.run

    async def close(self) -> None:
        self._wire.abort()

    # ---- what an audit asks

    async def batches(self, cursor: str) -> AsyncIterator[SessionBatch]:
        """A session is read when the scan finds its counter; without one, when it finds its messages."""
        scan: Reply = (cursor or "0").encode()
        pattern = f"{self._address.prefix}:{{s*}}:?"
        while True:
            [reply] = await self.ask(
                pack("SCAN", scan if isinstance(scan, bytes) else b"0", "MATCH", pattern, "COUNT", BATCH)
            )
            if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[1], list):
                raise Unreadable(f"{self._address.shown}: unexpected answer to SCAN: {str(reply)[:100]}")
            scan = reply[0]
            names = [name for name in dict.fromkeys(map(_bytes, reply[1])) if name]
            refs = [self._ref(self._address.session_key(name)) for name in names if name.endswith(b":c")]
            lonely, findings = await self.without_counter(
                [name for name in names if not name.endswith(b":c")]
            )
            yield SessionBatch(_bytes(scan).decode(), refs + lonely, tuple(findings))
            if scan == b"0":
                return

    async def piece(self, ref: SessionRef, after: int) -> SessionPiece | None:
        messages, counter, turns, fingerprints = self._address.session_keys(ref.key)
        start = self._starts.get(ref.key, 0) if after else 0
        while True:
            replies = await self.ask(
                pack("MULTI"),
                pack("TIME"),
                pack("HMGET", counter, *_COUNTER),
                pack("LLEN", messages),
                pack("PTTL", messages),
                pack("ZREVRANGE", turns, 0, 0, "WITHSCORES"),
                pack("PTTL", counter),
                pack("PTTL", turns),
                pack("ZCARD", turns),
                pack("HLEN", fingerprints),
                pack("HGET" if not after else "HEXISTS", counter, "metadata"),
                pack("LRANGE", messages, start, start + PIECE - 1),
                pack("EXEC"),
            )
            answers = replies[-1]
            if not isinstance(answers, list) or len(answers) != 11:
                raise Unreadable(f"{self._address.shown}: unexpected answer to EXEC: {str(answers)[:200]}")
            elements = answers[10] if isinstance(answers[10], list) else []
            parsed = [_parsed(element) for element in elements]
            if start and not (parsed and _begins_at(parsed[0], after)):
                start = max(0, start - PIECE)  # something before it was removed meanwhile
                continue
            following = [one for one in parsed if one[0] is None or one[0] > after]
            self._starts = {ref.key: start + _next_start(parsed)}
            return self._judged(ref, answers, following, begins=not after, ended=len(parsed) < PIECE)

    async def turns_over(self, ref: SessionRef, first: int, last: int) -> list[tuple[int, int]]:
        turns = self._address.session_keys(ref.key)[2]
        low, high = max(0, first - 16383) << 14, (last + 1) << 14
        [reply] = await self.ask(pack("ZRANGEBYSCORE", turns, low, high, "WITHSCORES", "LIMIT", 0, 20_000))
        scores = reply[1::2] if isinstance(reply, list) else []
        places = [place for score in scores if (place := _turn(score)) is not None]
        return [(begin, end) for begin, end in places if begin <= last and end >= first]

    async def number_of(self, key: bytes) -> int | None:
        [reply] = await self.ask(pack("EXISTS", *self._address.session_keys(key)[:2]))
        return 0 if reply else None

    async def position(self, key: bytes) -> int:
        [reply] = await self.ask(pack("HGET", self._address.session_keys(key)[1], "last"))
        return _number(reply) or 0

    async def facts(self) -> EngineFacts:
        identity, info = await self.ask(pack("GET", self._address.identity_key), pack("INFO"))
        return self._facts(identity, info)

    async def process_facts(self, key: bytes | None = None) -> EngineFacts:
        """Without the identity, which one node of a cluster may not have. Raises `Elsewhere` if it does not have the
        session of this key."""
        named = () if key is None else (pack("EXISTS", self._address.session_keys(key)[0]),)
        *_, info = await self.ask(*named, pack("INFO"))
        return self._facts(None, info)

    @staticmethod
    def _facts(identity: Reply, reply: Reply) -> EngineFacts:
        lines = reply.decode("utf-8", "replace").splitlines() if isinstance(reply, bytes) else []
        info = dict(line.split(":", 1) for line in lines if ":" in line)

        def number(name: str) -> int:
            return int(info[name]) if info.get(name, "").isdigit() else 0

        return EngineFacts(
            identity.decode("utf-8", "replace") if isinstance(identity, bytes) else None,
            info.get("run_id", ""),
            time.time() - number("uptime_in_seconds"),
            evicted=number("evicted_keys"),
            role=info.get("role", ""),
        )

    async def beside(self) -> AsyncIterator[tuple[int, list[AuditFinding]]]:
        """The scan has seen every key of this server, and there is no index."""
        yield 0, []

    async def without_counter(self, names: list[bytes]) -> tuple[list[SessionRef], list[AuditFinding]]:
        """Sessions that have messages but no counter, and findings about keys with neither."""
        keys = list(dict.fromkeys(self._address.session_key(name) for name in names))
        if not keys:
            return [], []
        requests = [
            command
            for key in keys
            for command in (
                pack("MULTI"),
                *(pack("EXISTS", name) for name in self._address.session_keys(key)),
                pack("EXEC"),
            )
        ]
        replies = await self.ask(*requests)
        lonely, findings = [], []
        for key, answer in zip(keys, replies[5::6], strict=True):
            there = answer if isinstance(answer, list) else [0, 1, 0, 0]
            if there[1] == 1:
                continue
            if there[0] == 1:
                lonely.append(self._ref(key))
            elif 1 in there[2:]:
                orphaned = "turn ids of a session that has neither messages nor a counter"
                findings.append(_finding("orphaned", name_of(key), orphaned))
        return lonely, findings

    # ---- how

    def _ref(self, key: bytes) -> SessionRef:
        return SessionRef(key, shard=self.shard)

    async def _look(self) -> None:
        """Refuses a Sentinel, and a server that has only a part of the sessions."""
        [info] = await self.ask(pack("INFO"))
        if is_sentinel(info):
            raise sentinel_refused(self._address.shown)
        if isinstance(info, bytes) and b"cluster_enabled:1" in info:
            nodes: Reply = None
            with contextlib.suppress(Unreadable):  # its user may not ask
                [nodes] = await self.ask(pack("CLUSTER", "INFO"))
            if not has_every_slot(nodes):
                raise one_node(self._address.shown, "audit")

    def _judged(
        self,
        ref: SessionRef,
        answers: list[Reply],
        records: list[tuple[int | None, object]],
        *,
        begins: bool,
        ended: bool,
    ) -> SessionPiece | None:
        session = name_of(ref.key)
        now_ms = _milliseconds(answers[0])
        fields = answers[1] if isinstance(answers[1], list) else [None] * len(_COUNTER)
        length = answers[2] if isinstance(answers[2], int) else 0
        known = dict(zip(_COUNTER, map(_number, fields), strict=True))
        last, floor, expires = known["last"], known["floor"] or 0, known["expires"]
        if isinstance(answers[1], ReplyError) or isinstance(answers[2], ReplyError):
            return SessionPiece(0, 0, [], True, claims=tuple(_of_another_kind(session, answers[1:3])))
        if last is None:
            if not length and fields[0] is None:
                return None  # erased meanwhile
            return _without_last(session, records, length)
        if not length and expires is not None and now_ms + EXPIRY_SLACK_MS >= expires:
            return None
        hidden, runs = known["hidden"] or 0, known["runs"] or 0
        claims = [
            *_expiry(session, now_ms, expires, length, answers[3]),
            *_early_ends(session, now_ms, expires, floor, answers[5], answers[6]),
            *_last_turn(session, last, answers[4]),
            *_lost_turns(session, answers[7], answers[8]),
            *_of_another_kind(session, answers[4:9]),
        ]
        ahead = max(known["updated"] or 0, known["created"] or 0) / 1000 - now_ms / 1000
        if ahead > CLOCK_SLACK_S:
            claims.append(
                _finding("clock", session, f"changed {ahead:,.0f} s in the future, by the engine's clock")
            )
        counted = (length, max(0, last - floor - hidden))
        about = _about(session, answers[9], known["annotated"] or 0, floor) if begins and length else ()
        return SessionPiece(
            last,
            floor,
            records,
            ended,
            runs=runs if length else None,
            counted=counted,
            claims=tuple(claims),
            about=about,
        )

    async def ask(self, *commands: bytes) -> list[Reply]:
        """The replies; the last of several commands is the end of a transaction if the slot is on its way here."""
        if self.asking:
            commands = (pack("ASKING"), *commands)
        try:
            async with asyncio.timeout(self._timeout_s):
                replies = await self._wire.replies(b"".join(commands), len(commands))
        except (OSError, WireLost, TimeoutError) as error:
            raise EngineUnavailable(f"{self._address.shown}: {str(error) or type(error).__name__}") from None
        replies = replies[1:] if self.asking else replies
        for reply in replies:
            if isinstance(reply, ReplyError) and reply.code in ELSEWHERE:
                raise Elsewhere(self._address.shown, reply)
            if isinstance(reply, ReplyError) and reply.code in (
                "LOADING",
                "MASTERDOWN",
                "BUSY",
                "CLUSTERDOWN",
            ):
                raise EngineUnavailable(f"{self._address.shown}: {reply.text}")
            if isinstance(reply, ReplyError) and reply.code in ("NOPERM", "NOAUTH", "EXECABORT"):
                refused = next((one for one in replies if isinstance(one, ReplyError)), reply)
                raise Forbidden(
                    f"{self._address.shown}: {refused.text}; an audit needs "
                    "+@read +@connection +@transaction +info +time"
                )
        return replies


def _expiry(session: str, now_ms: int, expires: int | None, length: int, ttl_ms: Reply) -> list[AuditFinding]:
    if not length or not isinstance(ttl_ms, int) or ttl_ms == -2:
        return []
    if expires is None:
        if ttl_ms < 0:
            return []
        told = f"its messages expire in {ttl_ms / 1000:,.0f} s, and its store gave them no time to live"
    elif ttl_ms < 0:
        told = "its messages never expire, and its store gave them a time to live"
    elif abs(now_ms + ttl_ms - expires) > EXPIRY_SLACK_MS:
        told = f"its messages expire in {ttl_ms / 1000:,.0f} s, its store said {(expires - now_ms) / 1000:,.0f} s"
    else:
        return []
    return [_finding("expiry", session, f"{told}: something else has changed that")]


def _early_ends(
    session: str, now_ms: int, expires: int | None, floor: int, counter_ttl_ms: Reply, turns_ttl_ms: Reply
) -> list[AuditFinding]:
    """The counter never expires, and turn ids a day after the messages: a retry may come late.

    Those of a session that was forgotten keep the expiry they had, which the counter no longer knows.
    """
    told = []
    if isinstance(counter_ttl_ms, int) and counter_ttl_ms >= 0:
        told.append(
            f"its counter expires in {counter_ttl_ms / 1000:,.0f} s, and then its sequences begin anew"
        )
    if isinstance(turns_ttl_ms, int) and turns_ttl_ms >= 0:
        early = (
            floor == 0
            if expires is None
            else now_ms + turns_ttl_ms < expires + TURNS_KEPT_MS - EXPIRY_SLACK_MS
        )
        if early:
            told.append(
                f"its turn ids expire in {turns_ttl_ms / 1000:,.0f} s, before their time; then a retry is stored twice"
            )
    return [_finding("expiry", session, f"{one}: something else has changed that") for one in told]


def _lost_turns(session: str, turns: Reply, fingerprints: Reply) -> list[AuditFinding]:
    """Every turn has a fingerprint, except those of older releases; a fingerprint without a turn has lost it."""
    if not isinstance(turns, int) or not isinstance(fingerprints, int) or fingerprints <= turns:
        return []
    return [lost_turns(session, fingerprints - turns)]


def _of_another_kind(session: str, answers: list[Reply]) -> list[AuditFinding]:
    if not any(isinstance(answer, ReplyError) for answer in answers):
        return []
    return [_finding("unreadable", session, "a key of the session holds another kind of value")]


def _about(session: str, metadata: Reply, annotated: int, floor: int) -> tuple[AuditFinding, ...]:
    """The counter says whether the session was annotated."""
    if metadata is None and annotated > floor:
        return (
            _finding("counters", session, "its metadata is gone: deleted by hand, or lost by the engine"),
        )
    return metadata_findings(session, metadata)


def _last_turn(session: str, last: int, newest: Reply) -> list[AuditFinding]:
    turn = _turn(newest[1]) if isinstance(newest, list) and len(newest) == 2 else None
    if turn is None or turn[1] <= last:
        return []
    told = f"the last turn has messages {turn[0]} to {turn[1]}, and the counter says {last}"
    return [AuditFinding(name="counters", session=session, sentence=told, first=last + 1, last=turn[1])]


def _without_last(session: str, records: list[tuple[int | None, object]], length: int) -> SessionPiece:
    """The list alone: its sequences say where it begins and ends; what came before is unknown."""
    lost = _finding(
        "counters", session, "its counter is gone: evicted or deleted; turn ids may be taken for new"
    )
    numbered = [(sequence, record) for sequence, record in records if sequence is not None]
    if not numbered:
        return SessionPiece(0, 0, [], True, claims=(lost,))
    first = run_first(numbered[0][1]) or numbered[0][0]
    return SessionPiece(numbered[-1][0], first - 1, records, length <= PIECE, claims=(lost,))


def _parsed(element: Reply) -> tuple[int | None, object]:
    if not isinstance(element, bytes):
        return None, element
    head, separator, record = element.partition(b" ")
    return (int(head), record) if separator and is_number(head) else (None, element)


def _begins_at(first: tuple[int | None, object], after: int) -> bool:
    """Whether nothing can be missing between the cursor and this element."""
    sequence, record = first
    return sequence is None or (run_first(record) or sequence) <= after + 1


def _next_start(parsed: list[tuple[int | None, object]]) -> int:
    """The last element that has a sequence, so that the next piece shows whether anything was removed before it."""
    numbered = [place for place, (sequence, _) in enumerate(parsed) if sequence is not None]
    return (numbered[-1] if numbered else 0) or len(parsed)


def _turn(score: Reply) -> tuple[int, int] | None:
    try:
        place = int(float(_bytes(score)))
    except (ValueError, OverflowError):
        return None
    return place >> 14, (place >> 14) + (place & 0x3FFF)


def _milliseconds(time: Reply) -> int:
    seconds, micros = (_number(part) or 0 for part in time) if isinstance(time, list) else (0, 0)
    return seconds * 1000 + micros // 1000


def _number(value: Reply) -> int | None:
    return int(value) if isinstance(value, bytes) and is_number(value) else None


def _bytes(value: Reply) -> bytes:
    return value if isinstance(value, bytes) else b""


def _finding(name: str, session: str, sentence: str) -> AuditFinding:
    return AuditFinding(name=name, session=session, sentence=sentence)
