"""The canary: it writes a message now and then, remembers what was acknowledged, and checks that it is still there.

It lives in the same store as the memory it watches, in two sessions of its own, so what happens to that memory also
happens to the canary. One session is written to until it has `MESSAGES_MAX` messages; then the other is forgotten and
takes over. Both have a time to live: an abandoned canary leaves nothing behind.

It reads without the store, read-only, as an audit does: a store opened on an empty engine would create a new identity
there. A loss is raised only if a second look, a moment later, sees the same.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from recollect.audit.auditing import opened
from recollect.audit.session_reading import SessionPiece, SessionReading
from recollect.audit.source import AuditSource, EngineFacts, SessionRef
from recollect.doctor import Diagnosis, examine
from recollect.errors import CannotOpen, EngineUnavailable, RecollectError
from recollect.message import Damaged, Message, decode
from recollect.opening import open_store
from recollect.printable import counted
from recollect.secret import scheme_of
from recollect.store import Receipt, Store
from recollect.tombstone import run_first
from recollect.watch.alarm import Alarm, CanaryLoss, named
from recollect.watch.memory import CanaryMemory, CanaryMessage

MESSAGES_MAX = 60
TTL = timedelta(days=7)
CONFIRM_S = 0.2
PREFIX = "recollect-watch"
VOLATILE = frozenset({"role", "connected_slaves", "aof_rewrite_in_progress", "wal_bytes", "journal_file"})
"""Values the doctor reads that are not settings, and change from moment to moment."""


class CanaryView:
    """What the engine shows of the canary's sessions."""

    def __init__(self, facts: EngineFacts, pieces: dict[str, SessionPiece | None]) -> None:
        self.facts = facts
        self.pieces = pieces


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
        self.sessions = [f"{PREFIX}/{memory.canary}/{number}" for number in (0, 1)]
        self._store: Store | None = None
        self._sources: dict[str, AuditSource] = {}
        self.replica_lag_s = 0.0
        """How long the replica has lacked what was acknowledged."""

    async def close(self) -> None:
        await self._let_go()
        if self._store is not None:
            with suppress(RecollectError):
                await self._store.close()
            self._store = None

    async def clean_up(self) -> None:
        """Removes its sessions from the engine."""
        store = await self._opened()
        for session in self.sessions:
            await store.forget(session, erase=scheme_of(self._url) != "sqlite")
        await self.close()

    # ---- saying

    async def speak(self, limit_s: float | None = None) -> CanaryAppend:
        """Writes one message, and waits for its acknowledgement, but no longer than `limit_s`.

        Opening the store is not part of the time, unless it fails.
        """
        began = time.monotonic()
        try:
            store = await self._opened()
            session = await self._session_to_write(store)
            message = Message("user", f"canary {self.memory.canary}")
            began = time.monotonic()
            async with asyncio.timeout(limit_s):
                receipt = await store.append(session, [message], turn=message.id)
        except TimeoutError:
            return CanaryAppend(time.monotonic() - began)
        except RecollectError as error:
            took_s = time.monotonic() - began
            await self.close()  # to be opened again: what this store knew may no longer be true
            return CanaryAppend(took_s, failure=error)
        took_s = time.monotonic() - began
        self.memory.note_said(CanaryMessage(session, receipt.last, message.id, time.time()))
        return CanaryAppend(took_s, receipt)

    async def _session_to_write(self, store: Store) -> str:
        """The current session; when it is full the other one, emptied."""
        number = self.memory.current
        if len(self.memory.said_in(self.sessions[number])) >= MESSAGES_MAX:
            number = 1 - number
            self.memory.forget(self.sessions[number])
            await store.forget(self.sessions[number])
            self.memory.set("current", str(number))
        return self.sessions[number]

    async def _opened(self) -> Store:
        if self._store is None:
            self._store = await open_store(self._url, ttl=TTL, timeout_s=self._timeout_s, pool_size=2)
        return self._store

    # ---- looking

    async def look(self) -> list[Alarm]:
        """What is wrong; messages that are reported lost are then forgotten."""
        first = await self._see()
        if not self._judged(first, forget=False):
            self._heard(first)
            return []
        await asyncio.sleep(CONFIRM_S)
        second = await self._see()
        alarms = self._judged(second, forget=True)
        self._heard(second)
        return alarms

    def _heard(self, seen: CanaryView) -> None:
        self.memory.facts = seen.facts
        self.memory.set("heard_at", str(time.time()))

    async def _see(self) -> CanaryView:
        """Keeps one connection, but opens a file each time: otherwise a swapped one would not be noticed."""
        if scheme_of(self._url) == "sqlite":
            await self._let_go()
        source: AuditSource
        try:
            source = await self._source(self._url)
        except EngineUnavailable:
            raise
        except CannotOpen:  # an engine without a store, or no file
            return CanaryView(EngineFacts(None, "", 0.0), dict.fromkeys(self.sessions))
        try:
            facts = await source.facts()
            if facts.identity is None:
                return CanaryView(facts, dict.fromkeys(self.sessions))
            return CanaryView(facts, {session: await _piece(source, session) for session in self.sessions})
        except RecollectError:
            await self._let_go()
            raise

    def _judged(self, seen: CanaryView, *, forget: bool) -> list[Alarm]:
        before = self.memory.facts or seen.facts
        alarms: list[Alarm] = []
        for session, piece in seen.pieces.items():
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
                alarms.append(self._loss(said, gone, piece, before, seen.facts))
                if forget:
                    self.memory.forget(session, [one.sequence for one in gone])
            elif piece is not None and (odd := _odd(session, piece, [one.id for one in said], there)):
                alarms += odd
                if forget:  # it would be reported for ever: continue in the other session
                    self.memory.forget(session)
                    self.memory.set("current", str(1 - self.sessions.index(session)))
        if not alarms and before.identity is not None and seen.facts.identity != before.identity:
            told = f"it was store {before.identity}, now it is {seen.facts.identity}"
            alarms.append(Alarm(name="replaced", sentence=told))
        return _joined(alarms)

    def _loss(
        self,
        said: list[CanaryMessage],
        gone: list[CanaryMessage],
        piece: SessionPiece | None,
        before: EngineFacts,
        now: EngineFacts,
    ) -> Alarm:
        loss = CanaryLoss(
            lost=len(gone),
            kept=len(said) - len(gone),
            span_s=time.time() - min(one.acknowledged_at for one in gone),
            position=None if piece is None else piece.last,
            acknowledged=max(one.sequence for one in said),
            expired=piece is not None and any(claim.name == "expired" for claim in piece.claims),
        )
        return named(loss, before, now, self.memory.heard_at, self.memory.window_s)

    async def look_at_replica(self) -> Alarm | None:
        """Whether the replica lacks what was acknowledged `stale_s` ago."""
        if self.replica is None:
            return None
        source = await self._source(self.replica)
        try:
            session = self.sessions[self.memory.current]
            there = _ids(await _piece(source, session))
        except RecollectError:
            await self._let_go()
            raise
        missing = [one.acknowledged_at for one in self.memory.said_in(session) if one.id not in there]
        self.replica_lag_s = time.time() - min(missing) if missing else 0.0
        if self.replica_lag_s <= self.stale_s:
            return None
        lacking = counted(len(missing), "message")
        told = f"the replica lacks {lacking}; the first was acknowledged {self.replica_lag_s:.1f} s ago"
        return Alarm(name="stale-replica", sentence=told, lost=0)

    async def look_at_settings(self) -> Alarm | None:
        """Compares what the doctor reads with what it read before. What an engine does not tell right now has not
        changed: a server that is loading its data keeps some of it back."""
        try:
            found = await examine(self._url, self._timeout_s)
        except EngineUnavailable:
            raise
        except CannotOpen:  # no file yet: the first message makes it
            return None
        known = self.memory.settings
        told = {name: value for name, value in found.settings.items() if name not in VOLATILE}
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
    """One alarm of each name, since both sessions report the same event."""
    by_name: dict[str, Alarm] = {}
    for alarm in alarms:
        other = by_name.get(alarm.name)
        if other is None or alarm.lost > other.lost:
            by_name[alarm.name] = alarm
    return list(by_name.values())


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
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2] or parts.path.strip("/")
    return "".join(letter if letter.isalnum() else "-" for letter in place).strip("-")[-60:] or "engine"
