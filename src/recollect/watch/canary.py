"""The canary: it writes a message now and then, remembers what was acknowledged, and checks that it is still there.

It lives in the same store as the memory it watches, in two sessions of its own, so what happens to that memory also
happens to the canary. One session is written to until it has `MESSAGES_MAX` messages; then the other is forgotten and
takes over. Both have a time to live: an abandoned canary leaves nothing behind.

In a cluster there are two such sessions for each part of the slots (`parts`), and a loss is told of the server that has
them. The replicas of a cluster or of a primary behind sentinels are read as well.

It reads without the store, read-only, as an audit does: a store opened on an empty engine would create a new identity
there. A loss is raised only if a second look, a moment later, sees the same.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from recollect.audit.auditing import opened
from recollect.audit.session_reading import SessionPiece, SessionReading
from recollect.audit.source import AuditSource, EngineFacts, NothingThere, Pinned, SessionRef, Spread
from recollect.doctor import Diagnosis, examine
from recollect.doctor.examination import is_several_servers
from recollect.errors import CannotOpen, EngineUnavailable, RecollectError
from recollect.message import Damaged, Message, decode
from recollect.opening import open_store
from recollect.printable import counted
from recollect.secret import scheme_of, split_address
from recollect.store import Receipt, Store
from recollect.tombstone import run_first
from recollect.watch.alarm import Alarm, CanaryLoss, named
from recollect.watch.memory import CanaryMemory, CanaryMessage
from recollect.watch.parts import CanaryPart, parts_of

if TYPE_CHECKING:
    from recollect.watch.copies import GroupCopies

MESSAGES_MAX = 60
TTL = timedelta(days=7)
CONFIRM_S = 0.2
VOLATILE = frozenset(
    {"role", "connected_slaves", "aof_rewrite_in_progress", "wal_bytes", "journal_file"}
    | {"primaries", "replicas", "sentinels", "sentinels-that-answer"}
)
"""Values the doctor reads that are not settings, and change from moment to moment."""


@dataclass(frozen=True)
class CanaryView:
    """What the engine shows of a part's sessions."""

    part: CanaryPart
    server: str
    """Which of several has them."""
    facts: EngineFacts
    pieces: dict[str, SessionPiece | None]


@dataclass
class Removed:
    """What a canary has removed of itself."""

    sessions: int = 0
    messages: int = 0


@dataclass(frozen=True)
class CanaryAppend:
    """A message that was written. Without a receipt and without a failure it was not waited for any longer."""

    took_s: float
    receipt: Receipt | None = None
    failure: RecollectError | None = None


class Canary:
    def __init__(
        self, url: str, memory: CanaryMemory, *, replica: str | None, timeout_s: float, stale_s: float
    ) -> None:
        self._url, self.replica, self._timeout_s, self.stale_s = url, replica, timeout_s, stale_s
        self.memory = memory
        self.parts = parts_of(url, memory.canary)
        self._store: Store | None = None
        self._sources: dict[str, AuditSource] = {}
        self._copies: GroupCopies | None = None
        self.replica_lag_s = 0.0
        """How long the replica has lacked what was acknowledged."""

    @property
    def sessions(self) -> list[str]:
        return [session for part in self.parts for session in part.sessions]

    async def close(self) -> None:
        await self._let_go()
        if self._copies is not None:
            await self._copies.close()
        await self._close_store()

    async def _close_store(self) -> None:
        if self._store is not None:
            with suppress(RecollectError):
                await self._store.close()
            self._store = None

    async def clean_up(self) -> Removed:
        """Removes its sessions from the engine. Where it has none, no store is opened, which would make one."""
        removed = Removed()
        for part in self.parts:
            for session, piece in (await self._see(part)).pieces.items():
                if piece is None:
                    continue
                store = await self._opened()
                await store.forget(session, erase=scheme_of(self._url) != "sqlite")
                removed.sessions += bool(piece.records)
                removed.messages += len(piece.records)
        await self.close()
        return removed

    # ---- saying

    async def speak(self, limit_s: float | None = None) -> CanaryAppend:
        """Writes one message to each part, and waits for the acknowledgements, but no longer than `limit_s`.

        Opening the store is not part of the time, unless it fails. Of several parts, the slowest counts.
        """
        began = time.monotonic()
        try:
            store = await self._opened()
            sessions = [await self._session_to_write(store, part) for part in self.parts]
            began = time.monotonic()
            async with asyncio.timeout(limit_s):
                said = await asyncio.gather(
                    *(self._say(store, session) for session in sessions), return_exceptions=True
                )
        except TimeoutError:
            return CanaryAppend(time.monotonic() - began)
        except RecollectError as error:
            said = [error]
        took_s = time.monotonic() - began
        failures = [one for one in said if isinstance(one, BaseException)]
        for failure in failures:
            if not isinstance(failure, RecollectError):
                raise failure
            if len(failures) == len(said):
                await self._close_store()  # to be opened again: what it knew may no longer be true
            return CanaryAppend(took_s, failure=failure)
        return CanaryAppend(took_s, next(one for one in said if isinstance(one, Receipt)))

    async def _say(self, store: Store, session: str) -> Receipt:
        message = Message("user", f"canary {self.memory.canary}")
        receipt = await store.append(session, [message], turn=message.id)
        self.memory.note_said(CanaryMessage(session, receipt.last, message.id, time.time()))
        return receipt

    async def _session_to_write(self, store: Store, part: CanaryPart) -> str:
        """The current session; when it is full the other one, emptied."""
        number = self.memory.current(part.name)
        if len(self.memory.said_in(part.sessions[number])) >= MESSAGES_MAX:
            number = 1 - number
            self.memory.forget(part.sessions[number])
            await store.forget(part.sessions[number])
            self.memory.set_current(part.name, number)
        return part.sessions[number]

    async def _opened(self) -> Store:
        if self._store is None:
            self._store = await open_store(self._url, ttl=TTL, timeout_s=self._timeout_s, pool_size=2)
        return self._store

    # ---- looking

    async def look(self) -> list[Alarm]:
        """What is wrong; messages that are reported lost are then forgotten. A part that cannot be read does not keep
        the others from being looked at; its error is raised if nothing else is wrong."""
        alarms: list[Alarm] = []
        failed: dict[str, RecollectError] = {}
        doubtful: list[CanaryPart] = []
        for part in self.parts:
            seen = await self._seen_or_failed(part, failed)
            if seen is not None and self._judged(seen, forget=False):
                doubtful.append(part)
            elif seen is not None:
                self._heard(seen)
        if doubtful:
            await asyncio.sleep(CONFIRM_S)
        for part in doubtful:
            seen = await self._seen_or_failed(part, failed)
            if seen is not None:
                alarms += self._judged(seen, forget=True)
                self._heard(seen)
        if failed and not alarms:
            raise next(iter(failed.values()))
        return _joined(alarms)

    async def _seen_or_failed(self, part: CanaryPart, failed: dict[str, RecollectError]) -> CanaryView | None:
        """Each server is waited for once."""
        source = self._sources.get(self._url)
        if source is not None and _server_of(source, part) in failed:
            return None
        server = "" if source is None else _server_of(source, part)
        try:
            return await self._see(part)
        except RecollectError as error:
            failed[server] = error
            return None

    def _heard(self, seen: CanaryView) -> None:
        self.memory.note_heard(seen.part.name, seen.facts, time.time())

    async def _see(self, part: CanaryPart) -> CanaryView:
        """Keeps one connection, but opens a file each time: otherwise a swapped one would not be noticed."""
        source: AuditSource
        try:
            if scheme_of(self._url) == "sqlite":
                await self._let_go()
            source = await self._source(self._url)
            if isinstance(source, Pinned) and await source.moved():
                await self._let_go()
                source = await self._source(self._url)
        except NothingThere:
            return CanaryView(part, "", EngineFacts(None, "", 0.0), dict.fromkeys(part.sessions))
        try:
            facts = await _facts_of(source, part)
            server = _server_of(source, part)
            return CanaryView(part, server, facts, await _pieces(source, part, facts))
        except RecollectError:
            if not part.name:  # a cluster's other servers go on
                await self._let_go()
            raise

    def _judged(self, seen: CanaryView, *, forget: bool) -> list[Alarm]:
        before = self.memory.facts(seen.part.name) or seen.facts
        alarms: list[Alarm] = []
        for number, (session, piece) in enumerate(seen.pieces.items()):
            said = self.memory.said_in(session)
            if said and time.time() > said[-1].acknowledged_at + TTL.total_seconds():
                self.memory.forget(session)  # it has expired, as it should
                continue
            if not said:
                continue
            there = _ids(piece)
            damaged = _damaged(piece)
            gone = [one for one in said if one.id not in there and one.sequence not in damaged]
            if gone:
                alarms.append(self._loss(said, gone, piece, before, seen))
                if forget:
                    self.memory.forget(session, [one.sequence for one in gone])
            elif piece is not None and (odd := _odd(session, piece, [one.id for one in said], there)):
                alarms += odd
                if forget:  # it would be reported for ever: continue in the other session
                    self.memory.forget(session)
                    self.memory.set_current(seen.part.name, 1 - number)
        if not alarms and before.identity is not None and seen.facts.identity != before.identity:
            now = f"now it is {seen.facts.identity}" if seen.facts.identity else "now it has no identity"
            told = f"it was store {before.identity}, {now}"
            alarms.append(Alarm(name="replaced", sentence=told))
        if seen.server:
            alarms = [
                msgspec.structs.replace(one, sentence=f"{seen.server}: {one.sentence}", server=seen.server)
                for one in alarms
            ]
        return _joined(alarms)

    def _loss(
        self,
        said: list[CanaryMessage],
        gone: list[CanaryMessage],
        piece: SessionPiece | None,
        before: EngineFacts,
        seen: CanaryView,
    ) -> Alarm:
        loss = CanaryLoss(
            lost=len(gone),
            kept=len(said) - len(gone),
            span_s=time.time() - min(one.acknowledged_at for one in gone),
            position=None if piece is None else piece.last,
            acknowledged=max(one.sequence for one in said),
            expired=piece is not None and any(claim.name == "expired" for claim in piece.claims),
            unreadable=piece is not None and any(claim.name == "unreadable" for claim in piece.claims),
        )
        heard_at = self.memory.heard_at(seen.part.name)
        return named(loss, before, seen.facts, heard_at, self.memory.window_s)

    async def look_at_replica(self) -> Alarm | None:
        """Whether a replica lacks what was acknowledged `stale_s` ago."""
        lacking: dict[str, list[float]] = {}
        if self.replica is not None:
            source = await self._source(self.replica)
            try:
                lacking["the replica"] = await self._missing_in(source, self.parts)
            except RecollectError:
                await self._let_go()
                raise
        if self._copies is not None:
            lacking |= await self._missing_in_copies(self._copies)
        late = {name: time.time() - min(missing) for name, missing in lacking.items() if missing}
        self.replica_lag_s = max(late.values(), default=0.0)
        if self.replica_lag_s <= self.stale_s:
            return None
        name = max(late, key=lambda one: late[one])
        told = f"{name} lacks {counted(len(lacking[name]), 'message')}; the first was acknowledged"
        return Alarm(name="stale-replica", sentence=f"{told} {late[name]:.1f} s ago", lost=0)

    async def _missing_in(self, source: AuditSource, parts: list[CanaryPart]) -> list[float]:
        """When what the source lacks was acknowledged."""
        missing = []
        for part in parts:
            session = part.sessions[self.memory.current(part.name)]
            there = _ids(await _piece(source, session))
            missing += [one.acknowledged_at for one in self.memory.said_in(session) if one.id not in there]
        return missing

    async def _missing_in_copies(self, copies: GroupCopies) -> dict[str, list[float]]:
        """Of each replica that answers. One that does not may be gone: who serves then is for the servers to say."""
        source = self._sources.get(self._url)
        if source is None:  # the primaries do not answer: whose copies these are is not known
            return {}
        by_copy: dict[tuple[str, int], list[CanaryPart]] = {}
        for part in self.parts:
            for copy in copies.of(_owner_of(source, part)):
                by_copy.setdefault(copy, []).append(part)
        lacking = {}
        for copy, parts in by_copy.items():
            replica = await copies.source(copy)
            try:
                if replica is not None:
                    missing = await self._missing_in(replica, parts)
                    lacking["the replica {}:{}".format(*copy)] = missing
            except RecollectError:
                await copies.drop(copy)
        return lacking

    async def look_at_settings(self) -> Alarm | None:
        """Compares what the doctor reads with what it read before. What an engine does not tell right now has not
        changed: a server that is loading its data keeps some of it back."""
        try:
            found = await examine(self._url, self._timeout_s)
            await self._learn_copies()
        except EngineUnavailable:
            raise
        except CannotOpen:  # no file yet: the first message makes it
            return None
        known = self.memory.settings
        told = {
            name: value for name, value in found.settings.items() if name.rpartition(" ")[2] not in VOLATILE
        }
        settings = {**(known or {}), **told}
        self.memory.note_settings(settings, _window_s(found))
        if known is None or known == settings:
            return None
        changed = [
            f"{name}: {known.get(name, 'not set')!r} is now {settings.get(name, 'not set')!r}"
            for name in sorted(known.keys() | settings.keys())
            if known.get(name) != settings.get(name)
        ]
        return Alarm(name="settings-changed", sentence="; ".join(changed)[:500])

    async def _learn_copies(self) -> None:
        if not is_several_servers(scheme_of(self._url)):
            return
        if self._copies is None:
            from recollect.watch.copies import GroupCopies

            self._copies = GroupCopies(self._url, self._timeout_s)
        await self._copies.learn()

    # ---- connections

    async def _source(self, url: str) -> AuditSource:
        source = self._sources.get(url)
        if source is None:
            source = self._sources[url] = await opened(url, self._timeout_s)
        return source

    async def _let_go(self) -> None:
        while self._sources:
            _, source = self._sources.popitem()
            await source.close()


def _owner_of(source: AuditSource, part: CanaryPart) -> tuple[str, int] | None:
    return source.owner_of(part.sessions[0].encode()) if isinstance(source, Spread) else None


def _server_of(source: AuditSource, part: CanaryPart) -> str:
    owner = _owner_of(source, part)
    return "" if owner is None else "{}:{}".format(*owner)


async def _facts_of(source: AuditSource, part: CanaryPart) -> EngineFacts:
    if isinstance(source, Spread):
        return await source.facts_of(part.sessions[0].encode())
    return await source.facts()


async def _pieces(
    source: AuditSource, part: CanaryPart, facts: EngineFacts
) -> dict[str, SessionPiece | None]:
    try:
        return {session: await _piece(source, session) for session in part.sessions}
    except RecollectError:
        if facts.identity is None:  # nor anything else
            return dict.fromkeys(part.sessions)
        raise


async def _piece(source: AuditSource, session: str) -> SessionPiece | None:
    number = await source.number_of(session.encode())
    return None if number is None else await source.piece(SessionRef(session.encode(), number), 0)


def _ids(piece: SessionPiece | None) -> dict[str, int]:
    """The ids of the messages that are there, in order."""
    if piece is None:
        return {}
    found = (
        decode(record)
        for _, record in piece.records
        if isinstance(record, bytes) and run_first(record) is None
    )
    return {message.id: place for place, message in enumerate(found) if isinstance(message, Message)}


def _damaged(piece: SessionPiece | None) -> set[int | None]:
    """Sequences whose record is there but is not what was written."""
    records = [] if piece is None else piece.records
    return {
        sequence
        for sequence, record in records
        if run_first(record) is None and isinstance(decode(record), Damaged)  # type: ignore[arg-type]
    }


def _odd(session: str, piece: SessionPiece, said: list[str], there: dict[str, int]) -> list[Alarm]:
    """When no message is missing: whether their order is wrong, and what else an audit would find."""
    places = [there[one] for one in said if one in there]
    if places != sorted(places):
        return [Alarm(name="reordered", sentence="messages are not in the order of their sequences any more")]
    reading = SessionReading(session)
    reading.take(piece)
    alarms = []
    for finding in reading.findings:
        if finding.name == "expiry":
            alarms.append(Alarm(name="expiry-changed", sentence=finding.sentence))
        elif finding.level == "damage":
            alarms.append(Alarm(name="damaged", sentence=finding.sentence))
    return alarms


def _joined(alarms: list[Alarm]) -> list[Alarm]:
    """One alarm of each name and server, since all its sessions report the same event: that with the most messages."""
    found: dict[tuple[str, str], Alarm] = {}
    for alarm in alarms:
        other = found.get((alarm.name, alarm.server))
        if other is None or alarm.lost > other.lost:
            found[alarm.name, alarm.server] = alarm
    return list(found.values())


def _window_s(found: Diagnosis) -> float | None:
    """How far back a loss can reach with the engine's settings; None means no bound."""
    windows = [
        symptom.window_s
        for symptom in found.findings
        if symptom.level == "loss" and {"kill-engine", "power-loss"} & set(symptom.when)
    ]
    return None if None in windows else max((window for window in windows if window is not None), default=0.0)


def address_of_file(url: str) -> str:
    """The default name for a canary's memory: from host and port, or from the file."""
    parts = split_address(url)
    place = parts.netloc.rpartition("@")[2] or parts.path.strip("/")
    return "".join(letter if letter.isalnum() else "-" for letter in place).strip("-")[-60:] or "engine"
