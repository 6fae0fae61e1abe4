"""Histories that were once judged wrongly; the file's name says what must come of them.

`dropped--lost-after-the-disturbance-is-no-reset.jsonl` must give exactly that anomaly, `nothing--…` none.
Anomalies are joined by `+`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History

FOLDER = Path(__file__).parent.parent / "histories" / "checkers"
SAVED = sorted(FOLDER.glob("*.jsonl"))


def test_there_are_saved_histories() -> None:
    assert SAVED


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_a_bug_once_fixed_stays_fixed(path: Path) -> None:
    expected, _, _ = path.stem.partition("--")
    names = [anomaly.name for anomaly in analyze(History(path)).anomalies]
    assert "+".join(names) == ("" if expected == "nothing" else expected)
