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
    "replaced": "this is not the store that its witness remembers: wiped, swapped or rolled back",
    "expired": "sessions that are over still occupy room; `sweep()` frees it",
    "clock": "times lie in the future",
    "one-node": "one node of a cluster was audited: the sessions of the others were not read",
}
"""Names are stable. The last three are notes: nothing is lost."""

NOTES = frozenset({"expired", "clock", "one-node"})


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and where."""

    name: str
    sentence: str
    session: str | None = None
    first: int | None = None
    """The first sequence it is about."""
    last: int | None = None

    @property
    def level(self) -> AuditLevel:
        return "note" if self.name in NOTES else "damage"

    @property
    def key(self) -> tuple[str, str | None, int | None, int | None]:
        """What two readings of one session are compared by; not the sentence, which quotes counters that move."""
        return self.name, self.session, self.first, self.last
