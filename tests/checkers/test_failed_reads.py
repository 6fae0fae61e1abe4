"""Reads that raise: when they count against the store."""

from __future__ import annotations

import pytest

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


def told(fault: str, error: str = "Gone: 1 of 4", loss_errors: tuple[str, ...] = ("Gone",)) -> Script:
    """A fault that may take the last message, and a process that says that something is gone."""
    script = written(policy="aof-everysec", fault=fault, loss_errors=loss_errors)
    script.wait(5.0)
    script.append(1)
    script.crash(fault)
    script.fail_read(1, error=error)
    return script


def test_a_documented_loss_that_a_read_tells() -> None:
    for error, loss_errors, status in (
        ("Gone: 1 of 4", ("Gone",), "documented-loss"),
        ("TypeError: None", ("Gone",), "violated"),
        ("Gone: 1 of 4", (), "violated"),
    ):
        script = told("power-loss", error, loss_errors)
        script.read(2, 0, 1, 2)
        assert script.verdict().status == status, (error, loss_errors)


def test_a_loss_that_is_told_and_did_not_happen() -> None:
    script = told("power-loss")
    script.read(2, 0, 1, 2, 3)
    assert script.verdict().status == "violated"


def test_a_loss_that_is_told_where_nobody_can_read_any_more() -> None:
    assert told("power-loss").verdict().status == "violated"
    assert told("evict").verdict().status == "documented-loss"


def test_a_loss_that_was_told_before_it_could_happen() -> None:
    script = written(policy="aof-everysec", fault="power-loss", loss_errors=("Gone",))
    script.wait(5.0)
    script.append(1)
    script.fail_read(1, error="Gone: 1 of 4")
    script.crash("power-loss")
    script.read(2, 0, 1, 2)
    assert script.verdict().status == "violated"


def test_a_loss_that_is_told_of_another_session() -> None:
    script = written(policy="aof-everysec", fault="power-loss", loss_errors=("Gone",))
    script.append(1, "other")
    script.wait(5.0)
    script.append(1)
    script.crash("power-loss")
    script.fail_read(1, "other", error="Gone: 1 of 1")
    script.read(2, 0, 1, 2)
    script.read(2, 3, session="other")
    assert script.verdict().status == "violated"


@pytest.mark.parametrize(("fault", "status"), [("evict", "violated"), ("node-kill", "documented-loss")])
def test_a_read_that_raises_between_evictions_is_not_excused_by_those_to_come(
    fault: str, status: str
) -> None:
    """Keys go one after the other, and in the end there is nothing left; a replica that had received nothing is there
    at once instead."""
    script = written(engine="redis" if fault == "evict" else "redis-sentinel", fault=fault)
    script.append(1, session="other")
    script.inject(fault)
    script.fail_read(2, session="other", error="TypeError: None")
    script.heal(fault)
    script.read(2)
    script.fail_read(2, session="other", error="TypeError: None")
    verdict = script.verdict()
    assert verdict.status == status, verdict
