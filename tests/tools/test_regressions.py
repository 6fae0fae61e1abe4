"""A benchmark beside the last one: what became worse is told, and what only differs from round to round is not."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parent.parent.parent


def report(column: str, *spread: float) -> dict[str, Any]:
    ratio = dict(zip(("median", "low", "high"), spread, strict=True))
    ours = {"columns": {column: {"ratio": ratio}}}
    return {
        "engines": [{"engine": "redis", "contenders": {"recollect": ours, "raw driver": {"columns": {}}}}]
    }


@pytest.mark.parametrize(
    ("column", "now", "is_worse"),
    [
        ("append", (0.5, 0.4, 0.6), True),
        ("append", (0.8, 0.6, 0.95), False),  # the spreads touch
        ("append", (3.0, 2.9, 3.1), False),
        ("read", (2.0, 1.9, 2.1), True),
        ("read", (0.5, 0.4, 0.6), False),
    ],
)
def test_figures_that_fell(
    monkeypatch: pytest.MonkeyPatch, column: str, now: tuple[float, float, float], is_worse: bool
) -> None:
    monkeypatch.syspath_prepend(PROJECT / "bench")
    worse = importlib.import_module("regressions").worse
    told = worse(report(column, *now), report(column, 1.0, 0.9, 1.1))
    assert bool(told) == is_worse
    assert worse(report("of another release", *now), report(column, 1.0, 0.9, 1.1)) == []


def test_the_figures_that_are_kept_can_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROJECT / "bench")
    regressions = importlib.import_module("regressions")
    kept = json.loads((PROJECT / "bench" / "results" / "stores.json").read_text())
    assert len(list(regressions._figures(kept))) >= 12
    assert regressions.worse(kept, kept) == []
