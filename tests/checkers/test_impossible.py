"""Histories that no runner could have written are refused with their line, not judged."""

from __future__ import annotations

import msgspec
import pytest

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import HistoryError, RecordedHistory
from recollect.verify.judging.op import Seen

from .history_script import Script, written


def with_value(script: Script, value: Seen | None, at: int = -1) -> RecordedHistory:
    history = script.history()
    events = list(history)
    events[at] = msgspec.structs.replace(events[at], value=value)
    return RecordedHistory(history.header, events)


def read_twice() -> Script:
    script = written()
    script.read(2, 0, 1, 2)
    return script


@pytest.mark.parametrize(
    "seen", [Seen(keep=9), Seen(keep=4), Seen(skip=1, keep=3), Seen(skip=-1, keep=1), Seen(skip=1, keep=-1)]
)
def test_a_read_keeps_no_more_than_there_was(seen: Seen) -> None:
    with pytest.raises(HistoryError, match=r"line 11: .*of a view of 3 elements"):
        analyze(with_value(read_twice(), seen))


@pytest.mark.parametrize("number", [3, 50])
def test_a_plain_number_that_nobody_was_given_is_a_phantom(number: int) -> None:
    verdict = analyze(with_value(read_twice(), Seen(keep=3, tail=(number, 1))))
    assert [anomaly.name for anomaly in verdict.anomalies] == ["phantom"]


def test_a_read_without_a_value_returned_nothing() -> None:
    verdict = analyze(with_value(read_twice(), None))
    assert [anomaly.name for anomaly in verdict.anomalies] == ["silent-reset"]


def test_a_retry_belongs_to_the_session_of_its_turn() -> None:
    script = Script()
    script.append(1)
    script.begin(1, "other", first=0)
    with pytest.raises(HistoryError, match="repeat a turn of another session or length"):
        script.verdict()


def test_a_retry_has_all_messages_of_its_turn() -> None:
    script = Script()
    script.append(1)
    script.append(1)
    script.begin(1, first=0, count=2)
    with pytest.raises(HistoryError, match="repeat a turn of another session or length"):
        script.verdict()


def test_number_zero_is_a_phantom_before_anything_was_written() -> None:
    script = Script()
    script.read(2)
    verdict = analyze(with_value(script, Seen(tail=(0, 1))))
    assert [anomaly.name for anomaly in verdict.anomalies] == ["phantom"]
    assert "number 0" in verdict.anomalies[0].sentence


def test_an_operation_ends_once() -> None:
    history = read_twice().history()
    events = list(history)
    events.append(msgspec.structs.replace(events[-1], index=len(events)))
    with pytest.raises(HistoryError, match=r"line 12: .*process 2 completes without an open invocation"):
        analyze(RecordedHistory(history.header, events))


def test_a_phantom_with_number_zero_does_not_stand_for_the_message_that_gets_it() -> None:
    script = Script()
    script.read(2)
    script.append(1)
    script.append(1)
    script.read(2, 0, 1)
    script.read(2, 1)
    verdict = analyze(with_value(script, Seen(tail=(0, 1)), at=1))
    assert [anomaly.name for anomaly in verdict.anomalies] == ["phantom", "trimmed"]


def test_an_operation_does_not_end_before_it_began() -> None:
    script = Script()
    script.append(1, retention_s=5.0)
    script.now_s = 9.0
    script.begin_read(2)
    script.now_s = 1.0
    script.end_read(2, 0)
    with pytest.raises(HistoryError, match=r"it ended at 1\.01 s, and began at 9"):
        script.verdict()
