"""The highest sequence each store knows of its sessions, so that it notices an engine that has lost its last writes.

An engine can come back with less than it acknowledged: a standby that was behind is promoted, a crash takes what was
buffered. Left alone, it would hand out the sequences of the lost messages again. So each store remembers the highest
sequence it has been told of each session, logs when the engine is behind it, and continues after it.

Others, who were told less, may write before that: up to the very sequence that is known here, so that the engine is not
behind any more, and where a change expects it to be. Once a loss was seen, such a change is a `Conflict` (`claimed`).

Bounded: a few numbers for each of `SESSIONS_KNOWN_MAX` sessions, under a digest where the id is long; the oldest go
first.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

SESSIONS_KNOWN_MAX = 10_000
ID_BYTES_MAX = 64
"""Up to this length an id is its own key here; a longer one is replaced by a digest."""

NOWHERE = -1
"""A position that no session has."""

SeenRow = tuple[int, int, bool, int]
"""Its number, floor, mark and checksum."""


Told = tuple[int, float]
"""The highest sequence that was acknowledged, and when that was asked for, by `time.monotonic`."""


def ended_by(erased_ago_s: float, told: Told) -> bool:
    """Whether all that was told is older than this erasure. What was under way at that moment counts as older."""
    _, sent_at = told
    return 0 <= erased_ago_s <= time.monotonic() - sent_at


class Known:
    """What this store was told of a session."""

    __slots__ = ("erased", "last", "lost_met", "lost_told", "row", "told")

    def __init__(self) -> None:
        self.last = 0
        """The highest sequence that was acknowledged here."""
        self.told: Told = (0, 0.0)
        """The same, and when that was asked for."""
        self.lost_told = 0
        """The loss of messages up to here has been logged."""
        self.lost_met = 0
        """A change that expected something was a conflict after that: its caller reads again."""
        self.row: SeenRow | None = None
        """PostgreSQL only: the session's row as an append last saw it, if it was intact and does not expire."""
        self.erased = False
        """Nothing is known of it any more. What began before the erasure may still hold it."""

    def note(self, last: int, sent_at: float) -> None:
        if last > self.last and not self.erased:
            self.last = last
            self.told = last, sent_at

    def doubts(self, expect: int | None) -> bool:
        """Whether this is the position of what was lost, so that it may be somebody else's by now."""
        return expect is not None and self.lost_met < self.lost_told == expect

    def claimed(self, expect: int | None) -> int | None:
        """The position that the engine compares with: `NOWHERE` if there is doubt."""
        return NOWHERE if self.doubts(expect) else expect

    def meet(self) -> None:
        """For a conflict."""
        self.lost_met = self.lost_told

    def still(self, told: Told) -> int:
        """What was told when a request was made, unless the session was erased here meanwhile."""
        return 0 if self.erased else told[0]

    def erase(self) -> None:
        self.erased, self.last, self.told, self.row = True, 0, (0, 0.0), None


class KnownSessions:
    """`Known` by session id, as bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, Known] = {}

    def of(self, key: bytes) -> Known:
        name = _name(key)
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= SESSIONS_KNOWN_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[name] = Known()
        return known

    def erased(self, key: bytes, known: Known, told: Told) -> None:
        """Another process has erased the session, and this was all that was known of it: unless it was used again
        meanwhile."""
        if known.told != told:
            return
        known.erase()
        name = _name(key)
        if self._known.get(name) is known:
            del self._known[name]

    @contextmanager
    def erasing(self, key: bytes) -> Iterator[None]:
        """While a session is erased, nothing is noted of it: an append that is under way may come before or after."""
        name = _name(key)
        if (before := self._known.get(name)) is not None:
            before.erase()
        try:
            self._known[name] = Known()
            self._known[name].erase()
            yield
        finally:
            self._known.pop(name, None)


def _name(key: bytes) -> bytes:
    return key if len(key) <= ID_BYTES_MAX else blake2b(key, digest_size=ID_BYTES_MAX).digest() + b"#"
