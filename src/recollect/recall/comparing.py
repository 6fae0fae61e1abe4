"""Comparing vectors one by one with NumPy: those that an index has not seen, or all of a user's.

All vectors have length 1, so the cosine is the scalar product.
"""

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from recollect.recall.index import Near
from recollect.recall.rows import Rows

SCAN_ROWS = 1_000
"""How many rows a scan reads at once, so that its memory is bounded however many the user has."""
ROUNDING = 1e-3


def nearest(vector: bytes, rows: Sequence[tuple[int, bytes]], k: int) -> list[Near]:
    """The best k of these rows, by comparing each."""
    if not rows:
        return []
    matrix = np.frombuffer(b"".join(stored for _, stored in rows), dtype=np.float32).reshape(len(rows), -1)
    scores = matrix @ np.frombuffer(vector, dtype=np.float32)
    best = np.argpartition(-scores, k - 1)[:k] if k < len(rows) else range(len(rows))
    return [Near(rows[at][0], float(scores[at])) for at in best]


def same(one: bytes, other: bytes) -> bool:
    """Whether two vectors are equal, apart from the rounding of an index that scales them back and forth."""
    if len(one) != len(other):
        return False
    differences = np.frombuffer(one, dtype=np.float32) - np.frombuffer(other, dtype=np.float32)
    return bool(np.abs(differences).max(initial=0.0) < ROUNDING)


async def scan(rows: Rows, user: bytes, vector: bytes, k: int) -> list[Near]:
    """The best k of all the user's rows. Needs no index, and memory for only `SCAN_ROWS` rows."""
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
    """The best k, each row once; ties go to the newest."""
    by_sequence: dict[int, Near] = {}
    for part in parts:
        for near in part:
            by_sequence.setdefault(near.sequence, near)
    return heapq.nlargest(k, by_sequence.values(), key=lambda near: (round(near.score, 6), near.sequence))
