"""Order, freshness, and the statements of a context read."""

from __future__ import annotations

import pytest

from recollect.verify.judging.op import Element, ReadAsked

from .history_script import Script, written


def test_real_time_order_of_appends_that_did_not_overlap() -> None:
    script = written()
    ended = script.read(2, 0, 2, 1)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message, anomaly.first.events[1]) == ("reorder", "m1", ended)
    assert ": Out of order: message m1 of" in anomaly.told


def test_real_time_order_between_an_old_element_and_a_new_one() -> None:
    script = written()
    script.append(1)
    script.append(1)
    script.read(2, 0, 1, 2, 4)
    script.read(2, 0, 1, 2, 4, 3)
    assert script.names() == ["reorder"]


def test_overlapping_appends_may_come_in_any_order() -> None:
    script = Script()
    script.begin_each(1, 2)
    script.ok_each(1, 2)
    script.read(3, 1, 0)
    assert script.names() == []


def test_but_in_one_order_for_everybody() -> None:
    script = Script()
    script.begin_each(1, 2)
    script.ok_each(1, 2)
    first = script.read(3, 1, 0)
    second = script.read(4, 0, 1)
    anomaly = script.only()
    assert anomaly.name == "reorder"
    assert set(anomaly.first.events) == {first, second}
    assert "Two reads disagree" in anomaly.sentence


def test_reads_that_never_showed_two_messages_together_do_not_disagree() -> None:
    script = Script()
    script.begin_each(1, 2, 3)
    script.read(4, 0, 1)
    script.read(4, 2)
    script.read(4, 2, 0, 1)
    script.ok_each(1, 2, 3)
    script.read(4, 2, 0, 1)
    assert "reorder" not in script.names()


def test_a_newcomer_between_two_known_messages_is_no_reorder() -> None:
    script = Script()
    script.begin_each(1, 2, 3)
    for shown in ((0, 2), (0, 1, 2), (0, 1, 2)):
        script.read(4, *shown)
    script.ok_each(1, 2, 3)
    script.read(5, 0, 1, 2)
    assert script.names() == []


def test_disagreement_about_a_newcomer() -> None:
    for last in ((1, 0, 3, 2), (0, 3, 1, 2), (0, 1, 2, 3)):
        script = Script()
        script.begin_each(1, 2, 3, 4)
        for shown in ((0, 2), (0, 1, 3, 2), (0,), last):
            script.read(5, *shown)
        script.ok_each(1, 2, 3, 4)
        assert "reorder" in script.names(), last


def test_disagreement_with_a_read_long_ago() -> None:
    script = Script()
    script.begin_each(1, 2, 3)
    script.read(4, 0, 1, 2)
    script.read(5, 2)
    script.read(6, 2, 1)
    assert "reorder" in script.names()


def test_two_copies_of_one_message_have_no_order_to_be_judged_by() -> None:
    """One copy stands before the other message and one behind: which of them a window shows says nothing."""
    script = written()
    other = script.begin(2)
    doubled = script.append(1, outcome="unknown")
    script.append(1, first=doubled)
    script.ok(2)
    script.read(3, other, doubled, ask=ReadAsked(last=2))
    script.read(3, 0, 1, 2, doubled, other, doubled)
    assert script.counts() == {"duplicate": 1}


def test_a_retried_turn_of_an_at_least_once_target_has_no_order_either() -> None:
    script = written(traits=("at_least_once",))
    doubled = script.append(1, outcome="unknown")
    script.begin(1, first=doubled)
    other = script.begin(2)
    script.read(3, 0, 1, 2, doubled, other)
    script.ok_each(2, 1)
    script.read(3, other, doubled, ask=ReadAsked(last=2))
    script.read(3, 0, 1, 2, doubled, other, doubled)
    assert script.names() == []


def test_the_order_inside_a_turn() -> None:
    script = Script()
    script.append(1, count=3)
    script.read(2, 0, 2, 1)
    anomaly = script.only()
    assert anomaly.name == "reorder"
    assert "first in their turn" in anomaly.sentence


def test_the_order_inside_a_turn_with_another_turn_between() -> None:
    script = Script()
    script.begin(1, count=2)
    script.begin(2)
    script.ok_each(1, 2)
    script.read(3, 1, 2, 0)
    assert script.names() == ["reorder"]


def test_a_write_in_doubt_may_take_effect_after_later_ones() -> None:
    script = Script()
    script.append(1, outcome="unknown")
    script.append(1)
    script.read(2, 1, 0)
    assert script.names() == []


def test_ordered_by_clock_targets_are_not_judged_by_real_time() -> None:
    script = written(traits=("ordered_by_clock",))
    script.append(1, count=2)
    script.read(3, 0, 1, 2, 3, 4)
    assert script.names() == []
    turned = Script(traits=("ordered_by_clock",))
    turned.append(1)
    turned.append(1)
    turned.read(2, 1, 0)
    assert turned.names() == []
    turned.append(1, count=2)
    turned.read(2, 1, 0, 3, 2)
    assert turned.names() == ["reorder"]


def test_windows_that_slide_keep_order() -> None:
    script = written(6)
    script.read(2, 3, 4, ask=ReadAsked(last=2))
    script.append(1)
    script.read(2, 5, 6, ask=ReadAsked(last=2))
    script.read(2, *range(7))
    assert script.names() == ["stale-read"]  # m5 was missing from the first window
    tidy = written(6)
    tidy.read(2, 4, 5, ask=ReadAsked(last=2))
    tidy.append(1)
    tidy.read(2, 5, 6, ask=ReadAsked(last=2))
    tidy.read(2, *range(7))
    assert tidy.names() == []


def test_a_clock_that_steps_back_is_a_reorder_although_windows_miss_messages() -> None:
    script = written(5)
    script.inject("clock-back", -60.0)
    script.append(1)
    script.heal("clock-back")
    script.read(2, 3, 4, ask=ReadAsked(last=2))
    script.read(2, 5, 0, 1, 2, 3, 4)
    assert script.names() == ["reorder"]


def test_stale_and_own_write_missing() -> None:
    script = written()
    script.append(1)
    began = script.writer._events
    script.read(2, 0, 1, 2)
    script.read(2, 0, 1, 2, 3)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("stale-read", "m3")
    assert anomaly.first.events == (began, began + 1, began + 3)
    own = written()
    own.append(1)
    own.read(1, 0, 1, 2)
    own.read(2, 0, 1, 2, 3)
    assert own.names() == ["own-write-missing"]


@pytest.mark.parametrize(
    ("reader", "variant", "named"),
    [
        (2, "several-writers", "Process 2"),
        (2, "several-callers", "Process 2"),
        (1, "several-callers", "Caller 1"),
    ],
)
def test_who_shares_a_process_is_no_process(reader: int, variant: str, named: str) -> None:
    script = written(fault="none", variant=variant)
    script.append(0)
    script.append(1)
    script.read(reader, 0, 1, 2, 4)
    script.read(3, 0, 1, 2, 3, 4)
    assert script.only().sentence.startswith(f"{named} read an old state")


def test_a_reader_that_sees_less_than_before() -> None:
    script = written()
    script.begin(1)
    before = script.read(2, 0, 1, 2, 3)
    script.read(3, 0, 1, 2)
    after = script.read(2, 0, 1, 2)
    script.ok(1)
    script.read(2, 0, 1, 2, 3)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("non-monotonic-read", "m3")
    assert anomaly.first.events == (before, after)


def test_another_reader_may_see_less() -> None:
    script = written()
    script.begin(1)
    script.read(2, 0, 1, 2, 3)
    script.read(3, 0, 1, 2)
    script.ok(1)
    script.read(3, 0, 1, 2, 3)
    assert script.names() == []


def test_a_reader_that_read_before_the_message_came_saw_nothing() -> None:
    script = written()
    script.read(3, 0, 1, 2)
    script.begin(1)
    script.read(2, 0, 1, 2, 3)
    script.read(3, 0, 1, 2)
    script.read(3, 0, 1, 2)
    script.ok(1)
    script.read(3, 0, 1, 2, 3)
    assert script.names() == []


def test_what_a_fault_took_back_is_named_with_the_fault() -> None:
    script = written()
    script.append(1, outcome="unknown")
    script.read(2, 0, 1, 2, 3)
    script.crash("power-loss")
    script.read(2, 0, 1, 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.fault) == ("non-monotonic-read", "power-loss")


def test_statements_of_one_state_agree() -> None:
    script = written(5)
    script.context(
        2,
        (ReadAsked(), [0, 1, 2, 3, 4]),
        (ReadAsked(last=2), [3, 4]),
        (ReadAsked(after=2), [3, 4]),
        (ReadAsked(last=9), [0, 1, 2, 3, 4]),
    )
    script.context(2, (ReadAsked(last=2), [3, 4]), (ReadAsked(after=1), [2, 3, 4]))
    assert script.names() == []


def test_a_statement_that_lacks_what_another_has() -> None:
    script = written(5)
    script.begin(1)
    script.context(2, (ReadAsked(), [0, 1, 2, 3, 4]), (ReadAsked(last=2), [4, 5]))
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("fractured-read", "m5")
    assert "statement 2 has it and statement 1 lacks it" in anomaly.sentence


def test_a_cursor_statement_that_lacks_what_the_window_has() -> None:
    script = written(5)
    script.begin(1)
    script.context(2, (ReadAsked(last=3), [3, 4, 5]), (ReadAsked(after=3), [4]))
    assert script.counts() == {"fractured-read": 1}


def test_two_statements_with_the_same_cursor() -> None:
    script = written(5)
    script.begin(1)
    script.context(2, (ReadAsked(after=3), [4]), (ReadAsked(after=3), [4, 5]))
    assert script.counts() == {"fractured-read": 1}


def test_windows_that_do_not_overlap_prove_nothing() -> None:
    script = written(5)
    script.begin(1)
    script.context(2, (ReadAsked(last=1), [4]), (ReadAsked(last=1), [5]))
    assert script.names() == []


def test_strangers_in_a_later_statement_are_seen() -> None:
    script = written(2)
    script.append(1, "other")
    script.read(2, 2, session="other")
    script.invoke(2, "context")
    phantom = Element(None, text="boo")
    shown = [Element(0, 0), Element(1, 1)]
    script.writer.ok_context(2, [(ReadAsked(), shown), (ReadAsked(), [*shown, Element(2, 2), phantom])])
    assert script.names() == ["cross-session-leak", "phantom"]


def test_a_stranger_in_a_later_statement_of_the_session_written_last() -> None:
    script = written(2)
    script.invoke(2, "context")
    shown = [Element(0, 0), Element(1, 1)]
    script.writer.ok_context(2, [(ReadAsked(), shown), (ReadAsked(), [*shown, Element(None, text="boo")])])
    assert script.names() == ["phantom"]


def test_message_number_zero_can_be_fractured_too() -> None:
    script = Script()
    script.begin(1)
    script.context(2, (ReadAsked(), []), (ReadAsked(), [0]))
    assert script.counts() == {"fractured-read": 1}


def test_windows_of_one_context_are_held_against_each_other() -> None:
    for first in ([0, 1], [1]):
        script = written(2)
        script.begin(1)
        script.context(2, (ReadAsked(last=len(first)), first), (ReadAsked(last=3), [0, 1, 2]))
        assert script.only().first.message == "m2", first


def test_statements_with_cursors_that_were_not_returned_prove_nothing() -> None:
    script = written(3)
    script.begin_each(3, 4)
    script.context(2, (ReadAsked(after=1), [2]), (ReadAsked(after=3), [4]))
    assert script.names() == []


def test_a_context_read_can_be_the_base_of_the_proof() -> None:
    script = Script()
    script.begin_each(1, 2)
    script.context(3, (ReadAsked(), [0]), (ReadAsked(last=1), [0]))
    first = script.read(3, 0, 1)
    script.read(3, 0, 1)
    last = script.read(3, 1, 0)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.events) == ("reorder", (last, first))


def test_a_context_read_can_be_the_proof() -> None:
    script = Script()
    script.begin_each(1, 2)
    script.context(3, (ReadAsked(), [0, 1]), (ReadAsked(last=1), [1]))
    script.read(3, 1, 0)
    assert script.names() == ["reorder"]


def test_suspicions_are_limited() -> None:
    script = Script()
    script.begin_each(*range(1, 251))
    script.read(0, *range(250))
    script.read(0, *reversed(range(250)))
    assert script.counts() == {"reorder": 200}
