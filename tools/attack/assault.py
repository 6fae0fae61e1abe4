"""What one attack has tried and found, and when it has to end."""

from __future__ import annotations

import random
import time
from collections import Counter

FINDINGS_MAX = 10
"""An attack that has found so much has made its point."""


class Assault:
    """Handed to an attack: its random numbers, its time, and where it says what it saw."""

    def __init__(self, seconds: float, seed: int, limit: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.limit = limit
        """How many times at most, for attacks that count attempts; None is as often as the time allows."""
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self._give_up = time.monotonic() + seconds

    def goes_on(self, attempts: str | None = None) -> bool:
        """Whether there is time left, and, if these attempts are counted, whether there were too few of them."""
        if self.limit is not None and attempts is not None and self.counts[attempts] >= self.limit:
            return False
        return time.monotonic() < self._give_up and len(self.findings) < FINDINGS_MAX

    @property
    def left_s(self) -> float:
        return max(0.0, self._give_up - time.monotonic())

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times

    def found(self, what: str) -> None:
        self.findings.append(what)

    def expect(self, held: bool, otherwise: str) -> bool:
        """Counts as found what did not hold."""
        if not held:
            self.found(otherwise)
        return held
