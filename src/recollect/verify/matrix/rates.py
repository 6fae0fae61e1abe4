"""How often each cell showed what, when a run is repeated with one seed after the other.

A tally per cell, not a list of runs: a night of runs takes no more memory than the first round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import exp, log, sqrt

import msgspec

CONFIDENCE = 0.95
_Z = 1.959964
"""The normal quantile of that confidence."""


class CellRate(msgspec.Struct, frozen=True, kw_only=True):
    """One cell, over all its runs that concluded something."""

    name: str
    """The scenario's name."""
    runs: int
    shown: dict[str, int] = {}
    """In how many runs, by the names of the anomalies that a run showed together, such as ``hole,lost-tail``."""
    unknown: int = 0
    """Further runs that concluded nothing."""


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds of a run: each has every cell once, with a seed of its own."""

    rounds: int
    seeds: tuple[int, int]
    """The first and the last."""
    cells: tuple[CellRate, ...] = ()

    @property
    def runs(self) -> int:
        return sum(cell.runs + cell.unknown for cell in self.cells)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """In how many of how many runs something showed, and the interval in which the true share lies."""

    shown: int
    runs: int
    low: float
    high: float
    confidence: float = CONFIDENCE

    @property
    def told(self) -> str:
        share = f"{100 * self.shown / self.runs:.1f} %"
        return (
            f"{self.shown} of {self.runs} runs, {share} ({100 * self.low:.1f} to {100 * self.high:.1f} % with "
            f"{100 * self.confidence:.0f} % confidence)"
        )


def rate(shown: int, runs: int) -> Rate:
    """Wilson's interval, which is right for few runs and for shares near 0 and 1 too."""
    if not 0 <= shown <= runs or not runs:
        raise ValueError(f"{shown} of {runs}: at least one run, and no more shown than there were")
    share, z2 = shown / runs, _Z * _Z
    middle = (share + z2 / (2 * runs)) / (1 + z2 / runs)
    reach = _Z / (1 + z2 / runs) * sqrt(share * (1 - share) / runs + z2 / (4 * runs * runs))
    low = 0.0 if not shown else max(0.0, middle - reach)
    high = 1.0 if shown == runs else min(1.0, middle + reach)
    return Rate(shown=shown, runs=runs, low=round(low, 4), high=round(high, 4))


def highest_unseen(runs: int) -> float:
    """The largest share of runs that may still show something that none of these showed.

    Exact and one-sided: for up to six clean runs, Wilson's interval would claim too much.
    """
    return 1.0 - exp(log(1.0 - CONFIDENCE) / runs)


def rate_of(repeated: Repeated, cells: Iterable[str], names: Collection[str]) -> Rate | None:
    """How often these cells showed any of these anomalies; None if none of them ran."""
    wanted = set(cells)
    there = [cell for cell in repeated.cells if cell.name in wanted]
    runs = sum(cell.runs for cell in there)
    shown = sum(
        count
        for cell in there
        for together, count in cell.shown.items()
        if not set(together.split(",")).isdisjoint(names)
    )
    return rate(shown, runs) if runs else None
