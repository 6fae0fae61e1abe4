"""A benchmark's figures beside those of the last one: which of ours have become worse?

Both are ratios to the raw driver in the same run, so a slower machine changes neither. Rounds differ, and so a figure
is worse only if its whole spread lies beyond the earlier one's, and by more than `MARGIN`.
"""

from collections.abc import Iterator
from typing import Any

OURS = "recollect"
MARGIN = 1.25
TIMES = frozenset({"read", "read_large"})
"""Columns where more is worse; the others are rates."""


def worse(report: dict[str, Any], earlier: dict[str, Any]) -> list[str]:
    """A sentence for each figure of ours that is worse than it was; both are what `bench/stores.py` writes."""
    known = dict(_figures(earlier))
    told = []
    for (engine, column), now in _figures(report):
        was = known.get((engine, column))
        if was is None:
            continue
        slower = now["low"] > was["high"] * MARGIN if column in TIMES else now["high"] < was["low"] / MARGIN
        if slower:
            told.append(f"{engine}, {column}: {_shown(now)}, and it was {_shown(was)}")
    return told


def _figures(report: dict[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    for engine in report["engines"]:
        columns = engine["contenders"].get(OURS, {"columns": {}})["columns"]
        for column, figures in columns.items():
            if figures["ratio"] is not None:
                yield (engine["engine"], column), figures["ratio"]


def _shown(ratio: dict[str, float]) -> str:
    return f"×{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"
