"""A violation is told only when a fresh process comes to the same from the saved history."""

from pathlib import Path

import msgspec
import pytest

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History
from recollect.verify.matrix import judged_again

SAVED = Path(__file__).parent.parent / "histories" / "checkers"
REORDERED = SAVED / "reorder--a-window-on-a-reordered-session-is-not-stale.jsonl"


def test_what_both_come_to_is_told() -> None:
    verdict = analyze(History(REORDERED))
    assert verdict.status == "violated"
    assert judged_again.told(verdict, REORDERED) is verdict


def test_what_a_fresh_process_does_not_see_is_unknown_and_a_bug_of_ours() -> None:
    verdict = analyze(History(REORDERED))
    other = msgspec.structs.replace(verdict.anomalies[0], name="corrupted")
    told = judged_again.told(msgspec.structs.replace(verdict, anomalies=(other,)), REORDERED)
    assert told.status == "unknown"
    assert told.reason is not None
    for words in ("corrupted", "reorder", "bug in recollect", str(REORDERED)):
        assert words in told.reason


def test_a_history_that_cannot_be_judged_again_accuses_nobody(tmp_path: Path) -> None:
    told = judged_again.told(analyze(History(REORDERED)), tmp_path / "gone.jsonl")
    assert told.status == "unknown"
    assert "it ended with" in (told.reason or "")


@pytest.mark.parametrize("status", ["held", "documented-loss", "exposed", "unknown"])
def test_only_violations_are_judged_again(status: str, tmp_path: Path) -> None:
    verdict = msgspec.structs.replace(analyze(History(REORDERED)), status=status)
    assert judged_again.told(verdict, tmp_path / "gone.jsonl") is verdict
