"""Reads that raise: when they count against the store."""

from __future__ import annotations

from recollect.verify.judging.op import Element

from .history_script import Script, written


def failing(script: Script) -> Script:
    script.fail_read(2)
    return script


def test_nothing_is_left_to_read() -> None:
    script = written()
    script.append(1, "other")
    script.read(2)
    assert failing(script).counts() == {"dropped": 3}


def test_a_search_that_raises_is_a_read_that_raises() -> None:
    script = written()
    script.invoke(2, "search")
    script.fail(2)
    assert script.names() == ["unreadable"]


def test_a_fault_is_active() -> None:
    script = written()
    script.inject("latency")
    assert failing(script).names() == []


def test_a_forget_is_in_doubt() -> None:
    script = written()
    script.forget(1, outcome="unknown")
    assert failing(script).names() == []


def test_a_session_that_may_have_expired_and_one_that_lives() -> None:
    script = Script(clock_bound_s=0.1)
    script.append(1, retention_s=5.0)
    assert failing(script).names() == ["unreadable"]
    script = Script(clock_bound_s=0.1)
    script.append(1, retention_s=5.0)
    script.wait(5.5)
    assert failing(script).names() == []


def test_a_session_that_may_have_expired_while_it_was_written() -> None:
    script = Script(clock_bound_s=0.1)
    script.begin(1, retention_s=5.0)
    script.wait(10.0)
    script.begin_read(2)
    script.ok(1)
    script.end_read(2, 0)
    assert failing(script).names() == []


def test_a_read_without_an_answer_is_one_unknown_outcome() -> None:
    script = written()
    script.begin_read(2)
    script.unknown(2)
    assert script.verdict().unknown_outcomes == 1


def test_one_acknowledged_message_is_enough() -> None:
    script = Script()
    script.append(1)
    assert failing(script).counts() == {"unreadable": 1}


def test_a_session_counts_once_however_often_reading_it_fails() -> None:
    assert failing(failing(written())).counts() == {"unreadable": 3}


def test_damage_beside_readable_messages_hides_nothing() -> None:
    script = written()
    script.read(2, 0, Element(None, damaged=True))
    assert script.counts() == {"corrupted": 1, "dropped": 1}


def test_what_cannot_be_read_after_the_engine_stopped_is_not_kept() -> None:
    """A wiped volume: the engine still answers from memory, then it is started again on nothing."""
    script = written(policy="aof-always", fault="wipe-volume")
    script.inject("wipe-volume")
    script.read(2, 0, 1, 2)
    script.writer.engine_stopped()
    script.writer.engine_started()
    script.heal("wipe-volume")
    verdict = failing(script).verdict()
    assert verdict.status == "documented-loss", verdict
    assert (verdict.acked, verdict.kept, verdict.lost, verdict.unchecked) == (3, 0, 0, 3)
    assert verdict.account == "3 of 3 not read back"
    assert any("3 acknowledged messages not read back" in gap for gap in verdict.not_covered)


def test_a_failed_read_in_between_does_not_make_it_unchecked() -> None:
    script = written(policy="aof-always", fault="kill-engine")
    script.crash()
    failing(script).read(2, 0, 1, 2)
    verdict = script.verdict()
    assert (verdict.kept, verdict.unchecked) == (3, 0)
