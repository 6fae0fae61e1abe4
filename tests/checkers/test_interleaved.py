"""What is judged where every step was chosen and nothing was broken: errors, hangs, and half turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.verify.judging.history import History
from recollect.verify.judging.op import BadEnd
from tests.checkers.history_script import Script


def orders() -> Script:
    return Script(workload="interleavings")


def names(script: Script) -> list[str]:
    return [anomaly.name for anomaly in script.verdict().anomalies]


def test_an_operation_that_is_blamed_raised() -> None:
    script = orders()
    script.append(0)
    script.begin(1)
    script.writer.unknown(1, "TypeError: no", BadEnd("raised"))
    script.read(2, 0)
    (anomaly,) = script.verdict().anomalies
    assert (anomaly.name, anomaly.silent) == ("raised", False)
    assert "TypeError: no" in anomaly.sentence
    assert script.verdict().status == "violated"


@pytest.mark.parametrize(("workload", "name"), [("interleavings", "dropped"), ("turns", "silent-reset")])
def test_an_empty_read_of_a_message_or_two_is_no_reset(workload: str, name: str) -> None:
    """A cache that was filled too early, such as: nothing was wiped."""
    script = Script(workload=workload)
    script.append(0)
    script.read(0, 0)
    script.read(2)
    assert names(script) == [name]


def test_an_operation_that_never_ends_hangs() -> None:
    script = orders()
    script.append(0)
    script.begin(1)
    script.writer.unknown(1, "it never ended", BadEnd("hang"))
    script.read(2, 0)
    assert names(script) == ["hang"]


def test_an_error_that_nobody_is_blamed_for_is_none() -> None:
    script = orders()
    script.append(0)
    script.append(1, outcome="fail")
    script.append(1, outcome="unknown")
    script.read(2, 0)
    assert names(script) == []


def test_a_reader_sees_half_a_turn() -> None:
    script = orders()
    script.begin(0, count=2)
    script.read(1, 0)
    script.ok(0)
    script.read(2, 0, 1)
    assert names(script) == ["torn-turn"]
    assert "has 1 of the 2 messages" in script.verdict().anomalies[0].sentence


def test_a_turn_that_is_whole_in_every_read_is_none() -> None:
    script = orders()
    script.begin(0, count=2)
    script.read(1)
    script.read(1, 0, 1)
    script.ok(0)
    script.read(2, 0, 1)
    assert names(script) == []


def test_a_cancelled_turn_that_is_there_in_half_is_torn() -> None:
    script = orders()
    script.append(0)
    script.append(1, count=2, outcome="unknown")
    script.read(2, 0, 1)
    assert names(script) == ["torn-turn"]


@pytest.mark.parametrize(
    "more", [{"workload": "append"}, {"workload": "interleavings", "traits": ["no_batches"]}]
)
def test_half_a_turn_elsewhere_may_be_on_its_way(more: dict[str, object]) -> None:
    script = Script(**more)
    script.begin(0, count=2)
    script.read(1, 0)
    script.ok(0)
    script.read(2, 0, 1)
    assert names(script) == []


def test_a_saved_history_is_judged_the_same(tmp_path: Path) -> None:
    script = orders()
    script.append(0)
    script.begin(1)
    script.writer.unknown(1, "it never ended", BadEnd("hang"))
    script.read(2, 0)
    file = tmp_path / "history.jsonl"
    file.write_bytes(script.file.getvalue())
    ends = [event.value for event in History(file) if isinstance(event.value, BadEnd)]
    assert ends == [BadEnd("hang")]


def test_errors_and_hangs_are_looked_for_in_interleavings_alone() -> None:
    for script, looks in ((Script(), False), (orders(), True)):
        script.append(0, count=2)
        script.read(1, 0, 1)
        covered = set(script.verdict().covered)
        assert ({"raised", "hang", "torn-turn"} <= covered) == looks
        assert not any("raised" in gap for gap in script.verdict().not_covered)
