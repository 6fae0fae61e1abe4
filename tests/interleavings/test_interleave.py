"""A few seconds of interleavings, as one verdict."""

from __future__ import annotations

from pathlib import Path

from recollect.verify.explore.interleavings.interleave import interleave
from recollect.verify.judging.history import History
from tests.interleavings.cells import HERE, Cell

STORES = "tests.interleavings.planted.redis_tasks"


def test_a_race_is_a_verdict_with_its_history_and_schedule(tmp_path: Path) -> None:
    found = interleave(f"{STORES}:OneValue", "redis", 60.0, tmp_path / "cell", path=(str(HERE),))
    assert found.verdict.status == "violated"
    assert found.verdict.anomalies
    assert "is gone" in (found.verdict.reason or "")
    assert History(tmp_path / "cell" / "history.jsonl").header.schedule == found.schedule != ""


def test_a_caller_that_gives_up_is_part_of_it(tmp_path: Path) -> None:
    found = interleave(f"{STORES}:LockKept", "redis", 15.0, tmp_path / "cell", path=(str(HERE),))
    assert [anomaly.name for anomaly in found.verdict.anomalies] == ["hang"]


def test_what_cannot_be_opened_is_unknown(tmp_path: Path) -> None:
    found = interleave(f"{STORES}:Nothing", "redis", 5.0, tmp_path / "cell", path=(str(HERE),))
    assert found.verdict.status == "unknown"
    assert "has no 'Nothing'" in (found.verdict.reason or "")
    assert found.schedule == ""


def test_statements_in_a_thread_of_the_drivers_are_told(tmp_path: Path) -> None:
    cell = Cell("sqlite_tasks:LooksBeforeItBegins", "sqlite", "tasks")
    failure = cell.explore(tmp_path, 60.0, programs=("a | a",)).found.failure
    assert failure is not None
    written = [(step.actor, step.told) for step in failure.steps if step.label.startswith("INSERT")]
    assert sorted(written) == [("A", "writes m0"), ("B", "writes m1")]


def test_a_driver_that_reads_into_a_buffer_of_its_own_gets_its_replies(tmp_path: Path) -> None:
    found = Cell("redis", "redis", "tasks").explore(tmp_path, 20.0, programs=("a | a",)).found
    assert (found.status, found.failure) == ("held", None)
