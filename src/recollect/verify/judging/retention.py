"""Retention: when a message may have expired, and when it must have.

The engine's clock is not ours: clock faults move it, and even untouched it is trusted only to within
`clock_bound_s`. So every moment is an interval of engine time, and a message is in one of three states:
surely alive, maybe expired (its absence proves nothing, nor does its presence), surely expired.

`HistoryHeader.refresh` says what restarts the life of a session: with `append` each append, with `read` each read as
well, with `never` nothing after the first append. With `message` every message has a life of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from recollect.verify.judging.op import RefreshRule

INFINITY = float("inf")


@dataclass
class _ClockSpan:
    """From `start_s` on, the engine's clock is between time + `low_s` and time + `high_s`."""

    start_s: float
    low_s: float
    high_s: float
    frozen: bool = False

    def low_at(self, time_s: float) -> float:
        return (self.start_s if self.frozen else time_s) + self.low_s


class EngineClock:
    """Translates a run's monotonic time into bounds on the engine's clock."""

    def __init__(self) -> None:
        self._spans = [_ClockSpan(0.0, 0.0, 0.0)]
        self._starts = [0.0]

    def inject(self, fault: str, offset_s: float, time_s: float) -> None:
        if fault == "clock-frozen":
            self._begin(_ClockSpan(time_s, 0.0, 0.0, frozen=True))
        elif fault == "ttl-drift":
            self._begin(_ClockSpan(time_s, -abs(offset_s), abs(offset_s)))
        else:
            self._begin(_ClockSpan(time_s, offset_s, offset_s))

    def heal(self, time_s: float) -> None:
        self._begin(_ClockSpan(time_s, 0.0, 0.0))

    def bounds(self, start_s: float, end_s: float) -> tuple[float, float]:
        """The least and the most that the engine's clock can have shown between two moments."""
        if end_s < start_s:
            raise ValueError(f"it ended at {end_s:g} s, and began at {start_s:g} s")
        return self.low(start_s, end_s), self.high(start_s, end_s)

    def low(self, start_s: float, end_s: float) -> float:
        """The least that the engine's clock can have shown between two moments."""
        first, last = self._span_at(start_s), self._span_at(end_s)
        if first == last:
            return self._spans[first].low_at(start_s)
        inner = (span.low_at(span.start_s) for span in self._spans[first + 1 : last + 1])
        return min(self._spans[first].low_at(start_s), *inner)

    def high(self, start_s: float, end_s: float) -> float:
        """The most that it can have shown."""
        first, last = self._span_at(start_s), self._span_at(end_s)
        if first == last:
            return end_s + self._spans[last].high_s
        ends = [*self._starts[first + 1 : last + 1], end_s]
        return max(end + span.high_s for end, span in zip(ends, self._spans[first : last + 1], strict=True))

    def _span_at(self, time_s: float) -> int:
        return max(0, bisect_right(self._starts, time_s) - 1)

    def _begin(self, span: _ClockSpan) -> None:
        self._spans.append(span)
        self._starts.append(span.start_s)


class Life:
    """The life of one session, for the refresh policies that renew all its messages together.

    `maybe_before` and `surely_before` are event indices: messages written before them may have, or must have,
    expired. They only grow, because what has expired does not come back when a later append renews the rest.
    """

    __slots__ = (
        "_bound_s",
        "_earliest_s",
        "_latest_s",
        "_refresh",
        "_retention_s",
        "_touches_open",
        "_uncertain",
        "maybe_before",
        "renewed",
        "surely_before",
    )

    def __init__(self, retention_s: float, refresh: RefreshRule, bound_s: float) -> None:
        self._retention_s = retention_s
        self._refresh = refresh
        self._bound_s = bound_s
        self._earliest_s = INFINITY  # engine time of the latest renewal, at the earliest
        self._latest_s = -INFINITY  # … and at the latest
        self._touches_open = 0
        self._uncertain = False
        self.maybe_before = 0
        self.surely_before = 0
        self.renewed = -1

    def may_renew(self, operation: str) -> bool:
        """Whether the operation can renew; with `read` we do not know which of a store's look-ups do."""
        return self._refresh == "read" or operation in ("append", "save", "replace", "retract")

    def begin(self, low_s: float) -> None:
        """An operation that may renew was invoked: until it completes, the end of life is open."""
        self._touches_open += 1
        if self._earliest_s == INFINITY:
            self._earliest_s = low_s

    def end(self, outcome: str, low_s: float, high_s: float, index: int, *, surely: bool) -> None:
        """It completed, between these engine times; `surely` is False if it may have renewed nothing.

        A failed one renewed nothing, an unknown one may still renew at any time. With `never`, whether an
        append began a new life depends on whether the old one had ended, so the earliest start stays.
        """
        self._touches_open -= 1
        if outcome == "unknown":
            self._uncertain = True
        if outcome != "ok":
            return
        if surely and self._refresh != "never":
            self._earliest_s = max(self._earliest_s, low_s)
        self._latest_s = max(self._latest_s, high_s)
        self.renewed = index

    def rewind(self, low_s: float) -> None:
        """The engine's clock was set back: a renewal from now on may run out earlier than the one before it."""
        self._earliest_s = min(self._earliest_s, low_s)

    def advance(self, low_s: float, high_s: float, index: int) -> None:
        """At event `index` the engine's clock is between `low_s` and `high_s`."""
        if self._earliest_s == INFINITY:
            return
        if high_s - self._earliest_s >= self._retention_s - self._bound_s:
            self.maybe_before = max(self.maybe_before, index)
        certain = not self._touches_open and not self._uncertain
        if certain and low_s - self._latest_s > self._retention_s + self._bound_s:
            self.surely_before = max(self.surely_before, index)

    def age_s(self, low_s: float) -> float:
        return low_s - self._latest_s
