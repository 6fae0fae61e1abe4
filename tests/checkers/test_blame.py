"""Which disturbance a loss is blamed on, whether a tail or a hole, and when time is to blame."""

from __future__ import annotations

import pytest

from .history_script import Script, written


def overlapping(count: int) -> Script:
    """Messages 1, 2, … of one session, written at the same time, beside another session that stays whole."""
    script = Script()
    script.append(9, "other")
    script.begin_each(*range(1, count + 1))
    return script


@pytest.mark.parametrize("order", [(2, 1, 3), (3, 1, 2)])
def test_a_hole_is_before_the_message_that_reads_showed_furthest_behind(order: tuple[int, ...]) -> None:
    script = overlapping(3)
    script.read(9, *order)
    script.ok_each(1, 2, 3)
    script.crash()
    script.read(9, *(message for message in order if message != 1))
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("hole", "m1")
    assert f"the later m{order[-1]} is there" in anomaly.sentence


def test_a_message_first_read_after_the_crash_says_nothing_about_order() -> None:
    script = overlapping(2)
    script.read(9, 1)
    script.ok_each(1, 2)
    script.crash()
    script.read(9, 2)
    assert script.counts() == {"lost-tail": 1}


def test_a_lost_message_never_read_says_nothing_about_order() -> None:
    script = overlapping(2)
    script.read(9, 2)
    script.ok_each(1, 2)
    script.crash()
    script.read(9, 2)
    assert script.counts() == {"lost-tail": 1}


def test_a_message_whose_order_is_in_dispute_makes_no_hole() -> None:
    script = overlapping(3)
    script.read(9, 3, 1, 2)
    script.read(9, 3, 2, 1)
    script.ok_each(1, 2, 3)
    script.crash()
    script.read(9, 1)
    assert script.counts() == {"lost-tail": 2, "reorder": 1}


def test_the_disturbance_after_the_message_was_last_seen_is_to_blame() -> None:
    script = overlapping(1)
    script.ok(1)
    script.crash("restart")
    script.read(9, 1)
    script.crash("power-loss")
    script.read(9)
    assert script.only().first.fault == "power-loss"


def test_an_earlier_disturbance_explains_what_went_missing_later() -> None:
    script = overlapping(1)
    script.ok(1)
    script.crash("restart")
    script.read(9, 1)
    script.read(9)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.fault) == ("lost-tail", "restart")


def test_what_time_took_has_no_loss_window() -> None:
    script = overlapping(1)
    script.ok(1)
    script.inject("clock-forward", 100.0)
    script.read(9)
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == ["expired-early"]
    assert verdict.loss_window_s is None


def test_a_kept_message_in_doubt_does_not_disprove_expiry() -> None:
    script = Script(refresh="message")
    script.append(1, "other")
    script.append(1, retention_s=5.0, outcome="unknown")
    script.append(1, retention_s=5.0)
    script.read(2, 1, 2)
    script.read(2, 1)
    assert script.names() == ["expired-early"]


def test_half_a_turn_does_not_expire() -> None:
    script = Script(refresh="message")
    script.append(1, "other")
    script.append(1, count=2, retention_s=5.0)
    script.read(2, 1, 2)
    script.read(2, 2)
    assert script.names() == ["dropped"]


def test_a_clock_set_right_before_the_write_is_not_to_blame() -> None:
    script = overlapping(1)
    script.inject("clock-forward", 100.0)
    script.heal("clock-forward")
    script.ok(1)
    script.read(9)
    assert script.names() == ["dropped"]


def test_a_crash_after_the_clock_took_it_is_not_to_blame() -> None:
    script = overlapping(1)
    script.ok(1)
    script.inject("clock-forward", 100.0)
    script.read(9)
    script.crash()
    script.read(9)
    assert script.names() == ["expired-early"]


def test_half_a_turn_that_the_clock_took_is_not_torn() -> None:
    script = Script()
    script.append(1, "other")
    script.append(1, count=2)
    script.inject("clock-forward", 100.0)
    script.read(2, 2)
    assert script.counts() == {"expired-early": 1}


def test_half_a_turn_lost_between_writers_that_a_target_does_not_claim_to_bear() -> None:
    script = Script(traits=("single_writer",))
    script.append(1)
    script.append(3, count=2)
    script.read(2, 0, 2)
    assert (script.names(), script.verdict().status) == ([], "held")


def test_message_number_zero_behind_a_gap_was_there_all_along() -> None:
    script = Script()
    script.begin_each(1, 2, 3)
    script.read(9, 2, 1, 0)
    script.ok_each(1, 2, 3)
    script.crash()
    script.read(9, 2, 0)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("hole", "m1")


def test_what_no_read_ever_showed_is_not_blamed_on_a_later_fault_that_left_a_later_message() -> None:
    """The store drops some messages; one of them was first looked for after the crash."""
    script = written()
    script.append(1)
    script.read(2, 0, 1, 2)
    script.append(1)
    script.append(1)
    script.crash()
    script.read(2, 0, 1, 2, 5)
    assert script.counts() == {"dropped": 2}


def test_a_tail_that_no_read_had_time_to_show_is_the_faults() -> None:
    script = written()
    script.append(1)
    script.read(2, 0, 1, 2)
    script.append(1)
    script.crash()
    script.read(2, 0, 1, 2)
    assert script.counts() == {"dropped": 1, "lost-tail": 1}


def test_a_hole_is_the_faults_where_nothing_is_ever_dropped() -> None:
    script = written()
    script.append(1)
    script.append(1)
    script.crash()
    script.read(2, 0, 1, 2, 4)
    assert script.counts() == {"hole": 1}


def test_a_memory_that_never_showed_anything_was_not_reset_by_a_fault() -> None:
    script = Script()
    script.append(1)
    script.read(2)
    script.append(1)
    script.crash()
    script.read(2)
    assert script.counts() == {"dropped": 2}


def test_nor_did_a_clock_take_it() -> None:
    script = Script()
    script.append(1)
    script.read(2)
    script.append(1)
    script.inject("clock-forward", 600.0)
    script.heal("clock-forward")
    script.read(2)
    assert script.counts() == {"dropped": 2}


def test_what_was_read_before_the_fault_is_the_faults_also_where_other_messages_are_dropped() -> None:
    script = written()
    script.append(1)
    script.read(2, 0, 1, 2)
    script.append(1)
    script.append(1)
    script.read(2, 0, 1, 2, 4, 5)
    script.crash()
    script.read(2, 0, 1, 2, 5)
    assert script.counts() == {"dropped": 1, "hole": 1}


def test_what_was_being_written_when_the_clock_was_set_went_with_its_session() -> None:
    """Stored with the expiry of the old time, acknowledged in the new one."""
    script = Script()
    script.append(9, "other")
    script.inject("clock-back", -3600.0)
    script.append(1)
    script.begin(1)
    script.heal("clock-back")
    script.ok(1)
    script.begin(1, "other")
    script.ok(1)
    script.read(9)
    script.read(9, 0, 3, session="other")
    assert script.counts() == {"expired-early": 2}


def test_but_not_with_another_session() -> None:
    script = Script()
    script.inject("clock-back", -3600.0)
    script.append(1, "other")
    script.begin(1)
    script.heal("clock-back")
    script.ok(1)
    script.append(1)
    script.read(9, session="other")
    script.read(9, 2)
    assert script.counts() == {"dropped": 1, "expired-early": 1}


def test_nor_if_it_was_written_after_the_clock_was_right_again() -> None:
    script = Script()
    script.inject("clock-back", -3600.0)
    script.append(1)
    script.heal("clock-back")
    script.append(1)
    script.append(1)
    script.read(9, 2)
    assert script.counts() == {"dropped": 1, "expired-early": 1}
