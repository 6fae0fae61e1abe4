"""The tail: rows that are not in the index yet, kept at hand to be compared one by one; and exact scans of all rows.

Vectors are compared with NumPy. All of them have length 1, so the cosine is the scalar product.
"""

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from recollect.recall.index import Near
from recollect.recall.rows import Change, Rows

SCAN_ROWS = 1_000
"""Rows read at once by a scan: its memory is bounded, whatever the user has."""


class Tail:
    def __init__(self) -> None:
        self.through = 0
        self._came: dict[bytes, dict[int, bytes]] = {}
        self._places: dict[int, tuple[int, bytes | None, int]] = {}
        """By number of the change: the row's sequence, its user, if it came."""

    def __len__(self) -> int:
        return len(self._places)

    def start(self, through: int) -> None:
        self.through = through
        self._came.clear()
        self._places.clear()

    def add(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if change.at <= self.through:
                continue
            self._places[change.at] = (change.sequence, change.user, change.at)
            if change.user is not None and change.vector is not None:
                self._came.setdefault(change.user, {})[change.sequence] = change.vector
            self.through = change.at

    def drop(self, through: int) -> None:
        """Forgets what the index has taken over."""
        for at in [at for at in self._places if at <= through]:
            sequence, user, _ = self._places.pop(at)
            if user is not None and (came := self._came.get(user)) is not None:
                came.pop(sequence, None)
                if not came:
                    del self._came[user]

    def of(self, user: bytes) -> list[tuple[int, bytes]]:
        return list(self._came.get(user, {}).items())


def nearest(vector: bytes, rows: Sequence[tuple[int, bytes]], k: int) -> list[Near]:
    """The best k of these rows, by comparing each."""
    if not rows:
        return []
    matrix = np.frombuffer(b"".join(stored for _, stored in rows), dtype=np.float32).reshape(len(rows), -1)
    scores = matrix @ np.frombuffer(vector, dtype=np.float32)
    best = np.argpartition(-scores, k - 1)[:k] if k < len(rows) else range(len(rows))
    return [Near(rows[place][0], float(scores[place])) for place in best]


async def scan(rows: Rows, user: bytes, vector: bytes, k: int) -> list[Near]:
    """The best k of all the user's rows. Needs no index, and the memory of `SCAN_ROWS` rows."""
    best: list[Near] = []
    after = 0
    while batch := await rows.scan(user, after, SCAN_ROWS):
        fitting = [row for row in batch if len(row[1]) == len(vector)]
        best = merged([best, nearest(vector, fitting, k)], k)
        after = batch[-1][0]
        if len(batch) < SCAN_ROWS:
            break
    return best


def merged(parts: Iterable[Iterable[Near]], k: int) -> list[Near]:
    """The best k, each row once; of equal ones the newest first."""
    by_sequence: dict[int, Near] = {}
    for part in parts:
        for near in part:
            by_sequence.setdefault(near.sequence, near)
    return heapq.nlargest(k, by_sequence.values(), key=lambda near: (round(near.score, 6), near.sequence))
