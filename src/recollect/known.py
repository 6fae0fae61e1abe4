"""How far a store knows its sessions to be, so that an engine that has lost its last writes is noticed.

An engine can come back with less than it acknowledged: a standby that was behind is promoted, a crash takes what was
buffered. Left to itself it would give the sequences of the lost messages out again. So each store remembers the highest
sequence that it was told of a session, says so when the engine is behind it, and goes on after it.

Bounded: two numbers for each of `SESSIONS_KNOWN_MAX` sessions, under a digest where the id is long; oldest go first.
"""

from hashlib import blake2b

SESSIONS_KNOWN_MAX = 10_000
ID_BYTES_MAX = 64
"""Of an id that is its own name here; a longer one has a digest."""


class Known:
    """What this store was told of a session."""

    __slots__ = ("last", "lost_told")

    def __init__(self) -> None:
        self.last = 0
        """The highest sequence that was acknowledged here."""
        self.lost_told = 0
        """The loss of messages up to here was logged."""

    def note(self, last: int) -> None:
        if last > self.last:
            self.last = last


class KnownSessions:
    """By a session's id as bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, Known] = {}

    def of(self, key: bytes) -> Known:
        name = key if len(key) <= ID_BYTES_MAX else blake2b(key, digest_size=ID_BYTES_MAX).digest() + b"#"
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= SESSIONS_KNOWN_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[name] = Known()
        return known
