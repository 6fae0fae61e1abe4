"""What an audit asks of an engine: sessions, pieces of them, and what belongs to none. Everything only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from recollect.audit.finding import AuditFinding
from recollect.audit.session_reading import SessionPiece
from recollect.errors import CannotOpen

PIECE = 500
"""Records in one piece."""
BATCH = 200
"""Sessions listed at once."""

CLOCK_SLACK_S = 60.0
"""How far a time may be ahead of the engine's clock before it is reported: machines' clocks are never quite equal."""


@dataclass(frozen=True)
class SessionRef:
    """A session, as its engine names it."""

    key: bytes
    """The session's id."""
    number: int = 0
    """The number of its row, where sessions have one."""
    shard: str | None = None
    """The server that had it when it was listed, if there are several."""


@dataclass(frozen=True)
class SessionBatch:
    cursor: str
    """Where to continue after these."""
    sessions: list[SessionRef]
    findings: tuple[AuditFinding, ...] = ()
    """Findings about keys that belong to no session."""


class NothingThere(CannotOpen):
    """The engine answers, and has no memory: no such file, no database, no tables."""


COPIES = frozenset({"slave", "standby"})


class EngineFacts(msgspec.Struct, frozen=True):
    """Which process answers, and what it has evicted: clues to how a loss came about."""

    identity: str | None
    """The store's identity; None if there is no store."""
    run: str
    """Identifies the process or the file; changes with a restart."""
    started_at: float
    """Epoch seconds by this machine's clock: a process older than the messages it lacks must be another server."""
    evicted: int = 0
    """Keys evicted since it was started."""
    role: str = ""
    """What the server says it is; one of `COPIES` follows another, and may be behind it."""


class AuditSource(Protocol):
    engine: str
    identity: str | None
    place: str
    """What a cursor is valid for: another server's cursors mean nothing here."""
    total: int | None
    """How many sessions there were at the start, if that is known without counting them one by one."""

    def batches(self, cursor: str) -> AsyncIterator[SessionBatch]:
        """All sessions, from a cursor on; '' is the beginning."""
        ...

    async def piece(self, ref: SessionRef, after: int) -> SessionPiece | None:
        """A snapshot of what follows a sequence; None if the session does not exist (any more), or has expired."""
        ...

    async def facts(self) -> EngineFacts:
        """Which engine answers right now."""
        ...

    async def turns_over(self, ref: SessionRef, first: int, last: int) -> list[tuple[int, int]]:
        """First and last sequences of remembered turns that overlap these."""
        ...

    async def number_of(self, key: bytes) -> int | None:
        """The number of the session's row, 0 where sessions have none; None if there is no such session."""
        ...

    async def position(self, key: bytes) -> int:
        """The last sequence of a session, by its id; 0 if there is none."""
        ...

    def beside(self) -> AsyncIterator[tuple[int, list[AuditFinding]]]:
        """Checks indexes and data that belongs to no session; each step yields the rows it read, and its findings."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Spread(Protocol):
    """A source whose sessions are on several servers."""

    def owner_of(self, key: bytes) -> tuple[str, int] | None:
        """Who has this session, as far as is known."""
        ...

    async def facts_of(self, key: bytes) -> EngineFacts:
        """Of the server that has this session."""
        ...


@runtime_checkable
class Pinned(Protocol):
    """A source that stays with the server on which it was opened."""

    async def moved(self) -> bool:
        """Whether another one serves by now."""
        ...


def name_of(key: object) -> str:
    """A session's id as reports show it."""
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)
