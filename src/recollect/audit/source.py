"""What an audit asks of an engine: sessions, pieces of them, and what lies beside them. Each only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from recollect.audit.finding import AuditFinding
from recollect.audit.session_reading import SessionPiece

PIECE = 500
"""Records of one piece."""
BATCH = 200
"""Sessions that are named at once."""

CLOCK_SLACK_S = 60.0
"""How far a time may lie ahead of the engine's clock before it is said: clocks of several machines are never equal."""


@dataclass(frozen=True)
class SessionRef:
    """A session, as its engine names it."""

    key: bytes
    """The session's id."""
    number: int = 0
    """Of its row, where sessions have one."""


@dataclass(frozen=True)
class SessionBatch:
    cursor: str
    """Where to go on after these."""
    sessions: list[SessionRef]
    findings: tuple[AuditFinding, ...] = ()
    """About keys that belong to no session."""


class EngineFacts(msgspec.Struct, frozen=True):
    """Which process answers, and what it has thrown away: how a loss came about."""

    identity: str | None
    """Of the store; None where there is none."""
    run: str
    """Of the process, or of the file; another one after a restart."""
    started_at: float
    """Epoch seconds by this machine's clock: a process that is older than what it does not know is another server."""
    evicted: int = 0
    """Keys, since it was started."""
    role: str = ""


class AuditSource(Protocol):
    engine: str
    identity: str | None
    place: str
    """What a cursor is good for: another server's cursors mean nothing here."""
    total: int | None
    """Sessions there were at the beginning, where that is known without counting them one by one."""

    def batches(self, cursor: str) -> AsyncIterator[SessionBatch]:
        """All sessions, from a cursor on; '' is the beginning."""
        ...

    async def piece(self, ref: SessionRef, after: int) -> SessionPiece | None:
        """What follows a sequence, of one moment; None if there is no such session (or no longer), or it expired."""
        ...

    async def facts(self) -> EngineFacts:
        """Which engine answers, as it is now."""
        ...

    async def turns_over(self, ref: SessionRef, first: int, last: int) -> list[tuple[int, int]]:
        """First and last sequences of remembered turns that share a sequence with these."""
        ...

    async def number_of(self, key: bytes) -> int | None:
        """Of the session's row, 0 where sessions have none; None if there is no such session."""
        ...

    async def position(self, key: bytes) -> int:
        """The last sequence of a session, by its id; 0 if there is none."""
        ...

    def beside(self) -> AsyncIterator[tuple[int, list[AuditFinding]]]:
        """What belongs to no session, and indexes: pieces of work, with how many rows each read."""
        ...

    async def close(self) -> None: ...


def name_of(key: object) -> str:
    """A session's id as reports show it."""
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)
