"""Faults that last, and engines that die while they do: when was what is lost taken?"""

from __future__ import annotations

from .history_script import written


def test_what_is_still_read_from_a_wiped_disk_does_not_make_the_reset_a_tail() -> None:
    """The files are gone, the engine has them open, and only its next start is empty."""
    script = written(fault="wipe-volume")
    script.inject("wipe-volume")
    script.read(2, 0, 1, 2)
    script.restart()
    script.heal("wipe-volume")
    script.read(2)
    assert script.counts() == {"silent-reset": 3}


def test_a_kept_message_that_was_acknowledged_while_the_fault_lasted_makes_a_hole() -> None:
    script = written(fault="latency")
    script.inject("latency")
    script.append(1)
    script.append(1)
    script.restart()
    script.heal("latency")
    script.read(2, 0, 1, 2, 4)
    assert script.counts() == {"hole": 1}


def test_under_a_lasting_fault_the_engine_may_have_died_by_itself_before() -> None:
    """PostgreSQL ends at the first sync that fails, and comes back: what it acknowledged then survived nothing."""
    script = written(engine="postgres", policy="async-commit", fault="fsync-error")
    script.append(1)
    script.inject("fsync-error")
    script.wait(2.0)
    script.append(1)
    script.restart()
    script.heal("fsync-error")
    script.read(2, 0, 1, 2, 4)
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == ["lost-tail"]
    assert verdict.status == "documented-loss"
    assert (verdict.loss_window_s or 0.0) < 0.6


def test_reads_that_fail_from_the_act_on_have_an_excuse() -> None:
    script = written(fault="disk-full")
    script.inject("disk-full")
    script.fail_read(2)
    script.restart()
    script.heal("disk-full")
    script.append(1)
    script.read(2, 0, 1, 2, 3)
    assert script.names() == []
