"""What an audit can find: names, and which of them mean that something is lost."""

from __future__ import annotations

from typing import Literal

import msgspec

AuditLevel = Literal["damage", "note"]

MEANINGS: dict[str, str] = {
    "gap": "sequences are missing that no retraction, replacement, expiry or forgetting explains",
    "half-turn": "some messages of one turn are there, and others are missing",
    "checksum": "a record is not what was written",
    "unreadable": "something that is not a record is where one belongs",
    "twice": "one sequence has two records",
    "counters": "what is counted about a session is not what it has",
    "index": "the engine's index and its rows disagree",
    "orphaned": "data whose session is not there",
    "expiry": "the engine will expire a session at another time than its store said",
    "replaced": "this is not the store that its witness remembers, or it has lost its identity",
    "emptied": "a shard of the cluster is not what it was: its sessions are gone",
    "hidden": "the engine has more rows than a read returns",
    "duplicate": "one message is there twice",
    "expired": "sessions that are over still occupy room; `sweep()` frees it",
    "clock": "times lie in the future",
    "behind": "this is a copy that had not received everything; its primary may have it",
    "moved": "slots changed hands while they were read; their sessions were read where they are now",
    "order": "a message is older than one above it",
    "open-call": "the session ends with a call that waits for its answer",
    "empty": "a session without messages",
    "unchecked": "messages without a checksum: another tool has written them, or an older release",
}
"""Names are stable. Those in `NOTES` are notes: nothing is lost."""

NOTES = frozenset({"expired", "clock", "behind", "moved", "order", "open-call", "empty", "unchecked"})


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and where."""

    name: str
    sentence: str
    session: str | None = None
    first: int | None = None
    """The first sequence it is about; in a store without sequences, the place in the session, from 1."""
    last: int | None = None
    shard: str | None = None
    """The server it is about, if the memory is spread over several."""

    @property
    def level(self) -> AuditLevel:
        return "note" if self.name in NOTES else "damage"

    @property
    def where(self) -> str:
        """The session, and its server if there are several."""
        if self.session is None or self.shard is None:
            return self.session or self.shard or ""
        return f"{self.session} (on {self.shard})"

    @property
    def key(self) -> tuple[str, str | None, int | None, int | None]:
        """What two readings of one session are compared by; not the sentence, which quotes counters that move."""
        return self.name, self.session, self.first, self.last
