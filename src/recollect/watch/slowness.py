"""When acknowledgements count as slow.

One that takes long says little: the machine was busy, or the server was restarted. So a slow one is followed by others
at once, and it is an alarm when `IN_A_ROW_MIN` or more in a row were slow and took `TIMES` as long together as one may.
Somebody who waits for a disk that has become slow is told after a few seconds; a single hiccup is only counted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

IN_A_ROW_MIN = 2
TIMES = 3.0
USUAL_MAX, SLOW_MAX = 100, 10
MARGIN_S = 0.01
"""Timers may be early by a little."""


@dataclass(frozen=True)
class AckWait:
    """For one acknowledgement, which may not have come."""

    took_s: float
    answered: bool = True

    def __str__(self) -> str:
        return f"{self.took_s:.2f} s" if self.answered else f"more than {self.took_s:.2f} s"


@dataclass
class Slowness:
    """The slow acknowledgements in a row, and what those before them took."""

    slow: deque[AckWait] = field(default_factory=lambda: deque(maxlen=SLOW_MAX))
    usual_s: deque[float] = field(default_factory=lambda: deque(maxlen=USUAL_MAX))

    def note(self, wait: AckWait, slow_s: float) -> None:
        if wait.took_s > slow_s or not wait.answered:
            self.slow.append(wait)
        else:
            self.slow.clear()
            self.usual_s.append(wait.took_s)

    def missing_s(self, slow_s: float) -> float:
        """How long to wait for the next acknowledgement: then it is certain."""
        return max(slow_s, TIMES * slow_s - sum(wait.took_s for wait in self.slow)) + MARGIN_S

    def is_slow(self, slow_s: float) -> bool:
        waited_s = sum(wait.took_s for wait in self.slow)
        return len(self.slow) >= IN_A_ROW_MIN and waited_s >= TIMES * slow_s

    def sentence(self, slow_s: float, durability: str, read_s: float) -> str:
        before = f"; {median(self.usual_s):.3f} s was usual" if self.usual_s else ""
        took = ", ".join(str(wait) for wait in self.slow)
        kind = f"{durability} " if durability else ""
        return (
            f"{len(self.slow)} {kind}acknowledgements in a row took {took}; {slow_s:g} s are fine{before}; "
            f"a read took {read_s:.3f} s"
        )
