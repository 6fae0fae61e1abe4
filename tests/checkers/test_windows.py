"""Windows: what a `last` or `after` read has to show, and what it cannot prove."""

from __future__ import annotations

import pytest

from recollect.verify.judging.op import Element, ReadAsked

from .history_script import Script, written
from .test_losses import written as written_beside_another

BOO, HOO = Element(None, text="boo"), Element(None, text="hoo")


def test_a_message_that_leaves_a_window_from_behind_its_first_element_is_missing() -> None:
    script = written(5)
    script.read(2, 2, 3, 4, ask=ReadAsked(last=3))
    script.read(2, 2, 4, ask=ReadAsked(last=2))
    script.read(2, *range(5))
    assert script.counts() == {"stale-read": 1}


@pytest.mark.parametrize("asked", [4, 5], ids=["as many", "one fewer"])
def test_a_window_may_begin_with_the_oldest_message(asked: int) -> None:
    """A prompt that is always kept; between it and the next, a window shows nothing."""
    script = written(9)
    script.read(2, 0, 6, 7, 8, ask=ReadAsked(last=asked))
    script.read(2, *range(9))
    assert script.names() == []


def test_but_what_comes_after_the_second_is_missed() -> None:
    script = written(9)
    script.read(2, 0, 5, 6, 8, ask=ReadAsked(last=4))
    script.read(2, *range(9))
    assert script.counts() == {"stale-read": 1}


def test_nor_may_it_begin_with_any_other() -> None:
    script = written(9)
    script.read(2, 1, 6, 7, 8, ask=ReadAsked(last=4))
    script.read(2, *range(9))
    assert script.counts() == {"stale-read": 4}


@pytest.mark.parametrize(("first", "names"), [(4, []), (5, ["stale-read"])])
def test_after_a_forget_another_one_is_the_oldest(first: int, names: list[str]) -> None:
    script = written(4)
    script.forget(1)
    for _ in range(6):
        script.append(1)
    script.read(2, first, 8, 9, ask=ReadAsked(last=3))
    script.read(2, *range(4, 10))
    assert script.names() == names


def test_missing_from_a_window_and_then_from_everything_is_lost_once() -> None:
    script = written(5)
    ended = script.read(2, 2, 4, ask=ReadAsked(last=2))
    script.read(2, 0, 1, 2, 4)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.events[1]) == ("dropped", ended)


def test_a_window_that_still_has_it_shows_that_a_missing_message_was_late() -> None:
    script = written(3)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    script.read(2, 0, 1)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    assert script.counts() == {"stale-read": 1}


def test_what_was_late_and_slid_out_of_the_window_is_not_lost() -> None:
    script = written(5)
    script.read(2, 3, 4, ask=ReadAsked(last=2))
    script.read(2, 0, 1, 2, 4)
    script.read(2, 3, 4, ask=ReadAsked(last=2))
    for _ in range(2):
        script.append(1)
    script.read(2, 5, 6, ask=ReadAsked(last=2))
    assert script.counts() == {"stale-read": 1}


def test_a_window_that_begins_with_a_message_in_doubt_proves_nothing() -> None:
    script = written(1)
    script.append(1, outcome="unknown")
    script.append(1)
    script.append(1)
    script.read(2, 1, 3, ask=ReadAsked(last=2))
    assert script.names() == []


@pytest.mark.parametrize("cursor", [3, 5, 99])
def test_a_cursor_that_is_not_of_this_session_proves_nothing(cursor: int) -> None:
    script = written(3)
    script.append(1, "other")
    script.append(1)
    script.read(2, 3, session="other")
    script.read(2, 0, 1, 2, 4)
    script.read(2, 2, 4, ask=ReadAsked(last=2))
    script.read(2, ask=ReadAsked(after=cursor))
    assert script.names() == []


def test_a_message_in_doubt_need_not_be_in_the_first_window() -> None:
    script = written(3)
    script.begin(1)
    script.read(2, 0, 1, 2, 3)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    assert script.names() == []


def test_a_window_of_strangers_alone_begins_nowhere() -> None:
    script = written(3)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    script.read(2, BOO, HOO, ask=ReadAsked(last=2))
    assert script.counts() == {"phantom": 2}


def test_a_window_begins_at_its_first_known_element() -> None:
    script = written(3)
    script.read(2, BOO, 1, ask=ReadAsked(last=2))
    script.read(2, 0, 1, 2)
    assert script.counts() == {"phantom": 1, "stale-read": 1}


def test_strangers_of_a_window_are_told_apart_from_those_of_other_reads() -> None:
    script = written(3)
    script.read(2, BOO, 0, 1, 2)
    script.read(2, HOO, 2, ask=ReadAsked(last=2))
    assert script.counts() == {"phantom": 2}


def test_overdue_messages_are_found_in_windows_too() -> None:
    script = Script(refresh="append", clock_bound_s=0.1)
    for _ in range(2):
        script.append(1, retention_s=5.0)
    script.wait(5.5)
    script.read(2, 0, 1, ask=ReadAsked(last=2))
    assert script.counts() == {"never-expired": 2}


def test_order_is_remembered_across_a_stranger_at_the_end_of_a_view() -> None:
    script = Script()
    script.begin_each(1, 2)
    script.read(3, 0, 1)
    script.read(4, 1, BOO)
    script.read(5, 1, BOO, 0)
    assert script.names() == ["phantom", "reorder"]


def test_the_latest_message_may_leave_and_the_rest_still_be_out_of_order() -> None:
    script = Script()
    for _ in range(4):
        script.append(1)
    script.read(2, 0, 2, 3)
    script.read(2, 0, 2, 1)
    assert script.counts() == {"dropped": 1, "reorder": 1}


def test_newcomers_before_the_first_message_are_in_order() -> None:
    script = Script()
    script.append(4, "other")
    script.begin_each(1, 2, 3)
    script.read(4, 2)
    script.read(4, 1, 2)
    script.read(4, 3, 1, 2)
    script.ok_each(1, 2, 3)
    script.crash()
    script.read(4, 2)
    assert script.counts() == {"hole": 2}


def test_what_is_acknowledged_after_the_first_window_is_expected_in_the_next() -> None:
    script = written(3)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    script.append(1)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    assert script.counts() == {"dropped": 1}


def test_a_message_out_of_order_once_can_be_lost_for_good() -> None:
    script = written(6)
    script.read(2, 3, 5, ask=ReadAsked(last=2))
    script.read(2, 0, 2, 1, 3, 4, 5)
    script.read(2, 0, 2, 3, 4, 5)
    assert script.counts() == {"dropped": 1, "stale-read": 1}


def test_a_window_that_begins_where_reads_disagree_proves_nothing() -> None:
    script = written(1)
    script.begin_each(3, 4)
    script.ok_each(3, 4)
    script.append(1)
    script.read(2, 0, 1, 2, 3)
    script.read(2, 0, 2, 1, 3)
    script.read(2, 1, ask=ReadAsked(last=1))
    assert script.names() == ["reorder"]


def test_a_window_must_have_what_provably_comes_behind_its_first_element() -> None:
    script = written_beside_another(5)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    script.read(2, 0, 1, 2, 3, 4)
    assert script.counts() == {"stale-read": 2}


def test_a_window_need_not_have_what_came_before_or_may_have() -> None:
    script = written_beside_another(5)
    script.read(2, 3, 4, ask=ReadAsked(last=2))
    script.read(2, 2, 3, 4, ask=ReadAsked(after=1))
    script.read(2, ask=ReadAsked(after=4))
    script.read(2, 4, ask=ReadAsked(last=1))
    assert script.names() == []


def test_late_in_a_window_then_lost_for_good_is_witnessed_by_the_loss() -> None:
    script = written_beside_another(5)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    script.read(2, 0, 1, 2, 3, 4)
    ended = script.read(2, 0, 1, 2, 4)
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == ["dropped", "stale-read"]
    assert verdict.anomalies[0].first.message == "m3"
    assert verdict.anomalies[0].first.events[1] == ended
    assert verdict.lost == 1


def test_a_cursor_must_not_skip() -> None:
    script = written_beside_another(5)
    script.read(2, 2, 4, ask=ReadAsked(after=1))
    script.read(2, 2, 3, 4, ask=ReadAsked(after=1))
    assert script.counts() == {"stale-read": 1}


def test_a_window_longer_than_the_session_covers_everything() -> None:
    script = written_beside_another(3)
    script.read(2, 1, 2, ask=ReadAsked(last=5))
    assert script.names() == ["trimmed"]


def late(*, whole_again: bool) -> Script:
    """A read lacks message 0. One that overlaps it has the message, and so has a later window."""
    script = written()
    script.read(2, 0, 1, 2, ask=ReadAsked(last=3))
    script.begin_read(2)
    script.begin_read(3)
    script.end_read(3, 1, 2)
    script.end_read(2, 0, 1, 2)
    if whole_again:
        script.read(2, 0, 1, 2)
    script.read(2, 0, 1, 2, ask=ReadAsked(last=3))
    return script


@pytest.mark.parametrize("whole_again", [True, False])
def test_a_message_that_the_latest_view_has_was_only_late(whole_again: bool) -> None:
    assert late(whole_again=whole_again).names() == ["stale-read"]


def test_a_message_that_is_back_only_in_a_read_beside_the_one_without_it_is_lost() -> None:
    script = written()
    script.begin_read(2)
    script.begin_read(3)
    script.end_read(3, 1, 2)
    script.end_read(2, 0, 1, 2)
    assert script.verdict().lost == 1


def test_a_message_that_was_there_twice_can_be_lost() -> None:
    script = written()
    script.read(2, 0, 0, 1, 2)
    script.read(2, 1, 2)
    assert script.verdict().lost == 1


def test_a_short_window_may_begin_where_the_store_wants() -> None:
    """Where a user speaks, for one. What is before that is in doubt until everything is read."""
    script = written(3)
    script.read(2, 0, 1, 2)
    script.read(2, 1, 2, ask=ReadAsked(last=3))
    assert script.names() == []
    script.append(1)
    script.read(2, 2, 3, ask=ReadAsked(last=3))
    script.read(2, 0, 1, 2, 3)
    assert script.names() == []


def test_what_a_short_window_left_in_doubt_is_missed_where_everything_is_read() -> None:
    script = written(3)
    script.read(2, 0, 1, 2)
    script.read(2, 1, 2, ask=ReadAsked(last=3))
    script.read(2, 1, 2)
    assert script.counts() == {"trimmed": 1}


def test_a_short_window_has_what_comes_after_its_first_element() -> None:
    script = written(3)
    script.read(2, 0, 1, ask=ReadAsked(last=3))
    script.read(2, 0, 1, 2)
    assert script.counts() == {"stale-read": 1}


def test_a_short_window_that_is_empty_lacks_everything() -> None:
    script = written(3)
    script.read(2, ask=ReadAsked(last=3))
    script.read(2, 0, 1, 2)
    assert script.counts() == {"stale-read": 3}


@pytest.mark.parametrize(("rows", "names"), [(4, ["lost-tail"]), (6, ["hidden"])])
def test_what_the_engine_has_is_held_against_a_read_of_everything(rows: int, names: list[str]) -> None:
    """The last read gave less than it was asked for, as a window that begins with the user's message."""
    script = written(6, policy="aof-everysec", fault="power-loss")
    script.crash("power-loss")
    script.read(2, 0, 1, 2, 3)
    script.read(2, 3, ask=ReadAsked(last=3))
    script.count(2, rows)
    assert script.names() == names


@pytest.mark.parametrize(("ask", "names"), [(ReadAsked(last=3), []), (None, ["lost-tail", "torn-turn"])])
def test_a_window_that_begins_inside_a_turn_does_not_tear_it(ask: ReadAsked | None, names: list[str]) -> None:
    script = Script(fault="kill-engine")
    script.append(1)
    script.append(1, count=2, outcome="unknown")
    script.crash("kill-engine")
    script.read(2, 0, 1, 2)
    script.read(2, 2, ask=ask)
    assert sorted(script.names()) == names


def test_a_count_beside_windows_alone_hides_nothing() -> None:
    script = Script()
    for _ in range(3):
        script.append(1)
    script.read(2, 0, ask=ReadAsked(last=1))
    script.count(3, 3)
    assert script.names() == ["dropped"]
