"""The account: every acknowledged message is kept, lost, forgotten or unchecked, and the witness is the first."""

from __future__ import annotations

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.op import Element, ReadAsked, RowsCounted
from recollect.verify.judging.verdict import Verdict

from .history_script import Script, written


def account(verdict: Verdict) -> tuple[int, int, int, int]:
    return verdict.kept, verdict.lost, verdict.forgotten, verdict.unchecked


def test_missing_from_windows_alone() -> None:
    script = Script()
    for _ in range(4):
        script.append(1)
    script.read(2, 1, 3, ask=ReadAsked(last=2))
    assert account(script.verdict()) == (2, 1, 0, 1)


def test_missing_from_a_window_after_the_last_whole_read() -> None:
    script = written(5)
    script.read(2, 2, 4, ask=ReadAsked(last=2))
    assert account(script.verdict()) == (4, 1, 0, 0)


def test_forgotten_after_the_last_read() -> None:
    script = written()
    script.forget(1)
    assert account(script.verdict()) == (0, 0, 3, 0)


def test_doubled_for_a_while() -> None:
    script = written()
    script.read(2, 0, 1, 1, 2)
    script.read(2, 0, 1, 2)
    assert account(script.verdict()) == (3, 0, 0, 0)


def test_lost_before_a_forget_and_written_anew_after_it() -> None:
    script = written()
    script.read(2, 0, 1)
    script.forget(1)
    script.append(1)
    script.append(1)
    script.fail_read(2)
    assert script.counts() == {"unreadable": 2, "dropped": 1}


def test_a_forget_in_doubt_is_one_unknown_outcome() -> None:
    script = written()
    script.forget(1, outcome="unknown")
    verdict = script.verdict()
    assert verdict.unknown_outcomes == 1
    assert any(gap.startswith("1 forget ended unknown") for gap in verdict.not_covered)


def test_the_witness_of_a_late_message_is_the_first_read_that_has_it_again() -> None:
    script = written()
    script.append(1)
    script.read(2, 0, 1, 2)
    back = script.read(2, 0, 1, 2, 3)
    script.read(2, 0, 1, 2, 3)
    assert script.only().first.events[2] == back


def test_a_count_that_began_before_the_read_proves_nothing() -> None:
    script = written()
    script.append(1, "other")
    script.crash()
    script.invoke(3, "count")
    script.read(2, 0)
    script.writer.ok(3, RowsCounted(3))
    assert script.names() == ["lost-tail"]


def test_a_reader_that_sees_less_while_the_write_is_acknowledged() -> None:
    script = written()
    script.begin(1)
    script.read(2, 0, 1, 2, 3)
    script.read(3, 0, 1, 2)
    script.begin_read(2)
    script.ok(1)
    script.end_read(2, 0, 1, 2)
    script.read(2, 0, 1, 2, 3)
    assert script.names() == ["non-monotonic-read"]


def test_what_a_single_writer_target_may_lose_is_not_held_against_its_reads() -> None:
    script = written(traits=("single_writer",))
    script.append(3)
    script.read(2, 0, 1, 2, 3)
    script.begin(1)
    script.read(2, 0, 1, 2, 3, 4)
    script.read(3, 0, 1, 2, 3)
    script.ok(1)
    script.read(2, 0, 1, 2, 3)
    verdict = script.verdict()
    assert (verdict.anomalies, verdict.status, verdict.lost) == ((), "held", 1)


def wiped() -> Script:
    """Two sessions that are both empty after a crash, then one of the messages comes back."""
    script = written()
    script.append(1, "other")
    script.crash()
    script.read(2)
    script.read(2, session="other")
    return script


def test_the_first_read_after_a_crash_says_whether_memory_was_reset() -> None:
    script = wiped()
    script.read(2, 0)
    assert script.counts() == {"silent-reset": 3, "stale-read": 1}


def test_a_read_that_began_before_the_next_crash_says_nothing_about_it() -> None:
    script = wiped()
    script.begin_read(2)
    script.inject("kill-engine")
    script.end_read(2, 0)
    assert script.counts() == {"silent-reset": 3, "stale-read": 1}


def test_an_engine_that_came_back_by_itself_explains_no_later_loss() -> None:
    script = written()
    script.writer.engine_stopped()
    script.writer.engine_started()
    script.append(1)
    script.read(2, 0, 1, 2, 3)
    script.read(2, 0, 1, 2)
    assert script.names() == ["dropped"]


def test_reads_fail_while_the_engine_is_down_whatever_was_healed() -> None:
    script = written()
    script.inject("kill-engine")
    script.writer.engine_stopped()
    script.heal("kill-engine")
    script.fail_read(2)
    assert script.names() == []


def test_forgotten_messages_in_the_same_window_as_before() -> None:
    script = written()
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    script.forget(1)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    assert script.counts() == {"resurrected": 2}


def test_shown_again_by_an_overlapping_read_and_kept_by_a_later_one() -> None:
    script = written()
    script.begin_read(3)
    script.forget(1)
    script.read(2)
    script.end_read(3, 0, 1, 2)
    assert script.names() == []
    script.read(2, 0, 1, 2)
    assert script.counts() == {"resurrected": 3}


def test_an_altered_message_after_a_forget_is_corrupted_only() -> None:
    script = written()
    script.forget(1)
    script.read(2, Element(1, 77))
    assert script.counts() == {"corrupted": 1}


def test_search_finds_message_zero_missing() -> None:
    script = written()
    script.search(2, [0, 1, 2], [1, 2])
    assert script.only().first.message == "m0"


def test_a_search_is_not_judged_for_another_session() -> None:
    script = written()
    script.append(1, "other")
    script.search(2, [0, 1, 2], [0, 1, 2, 3])
    assert script.names() == []


def test_a_search_that_a_forget_overtook_proves_nothing() -> None:
    script = written()
    script.invoke(2, "search")
    script.forget(1)
    script.writer.ok_search(2, [0, 1, 2], [])
    assert script.names() == []


def test_a_count_proves_nothing_if_a_forget_ended_since_the_read() -> None:
    script = written()
    script.append(1, "other")
    script.crash()
    script.read(2, 0)
    script.invoke(1, "forget")
    script.read(2, 0)
    script.fail(1)
    script.count(3, 3)
    assert script.counts() == {"lost-tail": 2}


def test_a_reader_remembers_a_message_that_only_moved_since() -> None:
    script = Script()
    script.append(1)
    script.begin_each(3, 4)
    before = script.read(2, 0, 1, 2)
    script.read(5, 0, 2)
    after = script.read(2, 0)
    assert script.counts() == {"non-monotonic-read": 2}
    assert script.only().first.events == (before, after)


def test_a_count_proves_nothing_if_a_write_ended_since_the_read() -> None:
    script = written()
    script.append(1, "other")
    script.crash()
    script.begin(1)
    script.read(2, 0)
    script.ok(1)
    script.count(3, 3)
    assert script.counts() == {"lost-tail": 2}


def test_what_was_never_read_or_came_after_the_cut_is_said() -> None:
    script = written()
    script.append(1)
    not_covered = analyze(script.history(truncated=True)).not_covered
    assert "1 acknowledged message not read back at the end" in not_covered
    assert "the history is cut off: what came later is unknown" in not_covered


def test_a_loss_without_a_fault_was_not_before_one() -> None:
    script = written()
    script.read(2, 1, 2)
    first = script.only().first
    assert (first.message, first.fault, first.before_fault_s) == ("m0", None, None)


def test_message_number_zero_has_its_time_before_the_fault() -> None:
    script = written()
    script.crash()
    script.read(2, 1, 2)
    assert script.only().first.before_fault_s == 0.07


def test_acknowledged_at_the_moment_of_the_fault_is_before_it() -> None:
    script = written()
    script.append(1)
    script.writer.fault_injected("power-loss")
    script.read(2, 0, 1, 2)
    assert "0.000 s before power-loss" in script.only().sentence


def test_an_element_without_a_number_is_named_by_its_session() -> None:
    script = written()
    script.read(2, 0, 1, 2, Element(None, damaged=True))
    assert 'an element in session "s", marked as damaged' in script.only().sentence


def test_a_compaction_without_a_read_may_drop_too() -> None:
    script = written()
    script.append(1, operation="save", dropped=(0, 2))
    script.read(2, 2, 3)
    assert script.names() == []


def test_turns_of_thousands_of_messages() -> None:
    script = Script()
    for _ in range(2):
        script.append(1, count=5000)
    script.read(2, *range(10_000))
    assert account(script.verdict()) == (10_000, 0, 0, 0)


def test_the_first_of_several_may_be_message_zero() -> None:
    script = written()
    script.read(2, 2)
    assert script.only().first.message == "m0"


def test_a_turn_in_doubt_and_then_acknowledged_is_torn_once() -> None:
    script = written()
    script.begin(1, count=2)
    script.inject("kill-app")
    script.unknown(1)
    script.append(1, first=3, count=2)
    script.heal("kill-app")
    script.read(2, 0, 1, 2, 3)
    assert script.counts() == {"torn-turn": 1}


def test_an_operation_that_never_ends_is_one_unknown_outcome() -> None:
    script = written()
    script.begin(1)
    assert script.verdict().unknown_outcomes == 1


def test_doubled_and_then_taken_back_counts_once() -> None:
    script = written()
    script.begin(1)
    script.read(2, 0, 1, 2, 3, 3)
    script.read(2, 0, 1, 2)
    assert script.counts() == {"duplicate": 1}


def test_a_session_without_acknowledged_messages_does_not_rule_a_reset_out() -> None:
    script = written()
    script.begin(1, "empty")
    script.read(2)
    assert script.counts() == {"silent-reset": 3}
    script.read(2, 2, ask=ReadAsked(last=1))
    assert script.counts() == {"silent-reset": 2, "stale-read": 1}


def test_half_a_turn_in_doubt_that_leaked_is_a_leak() -> None:
    script = written()
    script.append(3, "other")
    script.interrupt(1, count=2)
    script.read(2, 0, 1, 2, 4)
    script.read(2, 3, 5, session="other")
    assert script.counts() == {"cross-session-leak": 1}


def test_half_an_acknowledged_turn_that_leaked_is_a_leak() -> None:
    script = written()
    script.append(3, "other")
    script.append(1, count=2)
    script.crash()
    script.read(2, 0, 1, 2, 4)
    script.read(2, 3, 5, session="other")
    assert script.counts() == {"cross-session-leak": 1}


def test_half_a_turn_in_doubt_after_a_forget_proves_nothing() -> None:
    script = written()
    script.interrupt(1, count=2)
    script.forget(1)
    script.read(2, 3)
    assert script.names() == []
