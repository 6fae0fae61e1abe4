"""Who took a message that is gone without a fault: another writer only where its write provably went over it."""

from __future__ import annotations

import pytest

from recollect.verify.judging.op import Element

from .history_script import Script


def two_sessions() -> Script:
    """Somebody talks in another session."""
    script = Script()
    script.append(9, "other")
    return script


def written() -> Script:
    script = two_sessions()
    script.append(1)
    script.append(1)
    script.read(2, 1, 2)
    return script


def named(script: Script, name: str) -> str:
    anomaly = script.only()
    assert anomaly.name == name
    return anomaly.sentence


def test_nobody_else_wrote_and_the_newest_is_gone() -> None:
    script = written()
    script.read(2, 1)
    assert "nobody overwrote it" in named(script, "dropped")


def test_nobody_else_wrote_and_the_oldest_is_gone() -> None:
    script = written()
    script.read(2, 2)
    assert "oldest end" in named(script, "trimmed")


def test_a_message_from_the_middle_is_not_trimmed() -> None:
    script = written()
    script.append(1)
    script.read(2, 1, 2, 3)
    script.read(2, 1, 3)
    named(script, "dropped")


def test_what_nobody_saw_with_a_later_one_is_not_trimmed() -> None:
    """The whole session was there and is not; that something was written afterwards does not make it a trimmed one."""
    script = written()
    script.append(1)
    script.read(2, 3)
    assert script.counts() == {"dropped": 2}


def test_what_stayed_in_another_session_is_no_proof() -> None:
    script = written()
    script.append(9, "other")
    script.read(2, 0, 3, session="other")
    script.append(1)
    script.read(2, 4)
    assert script.counts() == {"dropped": 2}


def test_nor_is_what_nobody_has_read_yet() -> None:
    script = written()
    script.append(1)
    script.read(2, 3)
    script.append(1)
    assert script.counts() == {"dropped": 2}


def test_a_write_in_doubt_that_came_late_does_not_count_as_the_oldest() -> None:
    script = two_sessions()
    script.begin(3)
    script.unknown(3)
    script.append(1)
    script.append(1)
    script.read(2, 2, 3)
    script.read(2, 3, 1)
    named(script, "trimmed")


def test_half_a_turn_can_be_trimmed() -> None:
    script = two_sessions()
    script.append(1, count=2)
    script.append(1)
    script.read(2, 1, 2, 3)
    script.read(2, 2, 3)
    named(script, "trimmed")


def test_everything_that_went_before_the_oldest_kept_is_trimmed_also_what_no_read_showed() -> None:
    script = written()
    script.append(1)
    script.append(1)
    script.read(2, 2, 3, 4)
    script.append(1)
    script.append(1)
    script.append(1)
    script.read(2, 6, 7)
    assert script.counts() == {"trimmed": 5}


def test_the_other_wrote_after_the_read() -> None:
    script = written()
    script.read(2, 1)
    script.append(3)
    named(script, "dropped")


def test_the_other_was_done_before_the_write_began() -> None:
    script = two_sessions()
    script.append(3)
    script.append(1)
    script.read(2, 1)
    named(script, "dropped")


def test_the_other_overlapped() -> None:
    script = two_sessions()
    script.begin_each(3, 1)
    script.ok(3)
    script.ok(1)
    script.read(2, 1)
    assert "process 3 wrote to the session meanwhile (event 2)" in named(script, "lost-update")


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [(1, 3, "lost-update"), (3, 1, "dropped")],
    ids=["begun while the message was being written", "begun before, and over nobody knows when"],
)
def test_the_other_overlapped_and_its_outcome_is_unknown(first: int, second: int, name: str) -> None:
    script = two_sessions()
    script.begin_each(first, second)
    script.unknown(3)
    script.ok(1)
    script.read(2, 2 if first == 1 else 1)
    named(script, name)


def test_what_is_unknown_and_was_in_no_read_went_over_nothing() -> None:
    script = two_sessions()
    script.begin_each(3, 1)
    script.unknown(3)
    script.ok(1)
    script.read(2)
    script.append(1)
    script.read(2, 3)
    named(script, "dropped")


def test_a_write_that_was_seen_before_the_other_began_is_over() -> None:
    script = two_sessions()
    script.begin(3)
    script.unknown(3)
    script.read(2, 1)
    script.append(1)
    script.read(2, 1)
    named(script, "dropped")


def test_the_process_itself_is_no_other() -> None:
    script = two_sessions()
    script.append(1)
    script.append(1)
    script.read(2, 2)
    named(script, "dropped")


def test_overlapping_proves_nothing_where_messages_also_vanish_alone() -> None:
    script = written()
    script.append(1)
    script.begin_each(3, 1)
    script.ok(3)
    script.ok(1)
    script.append(1)
    script.read(2, 1, 2, 4, 6)
    assert script.counts() == {"dropped": 2}


def test_but_what_was_there_and_vanished_behind_an_overlapping_write_was_overwritten() -> None:
    script = written()
    script.append(1)
    script.begin_each(3, 1)
    script.ok(1)
    script.read(2, 1, 2, 5)
    script.ok(3)
    script.read(2, 1, 2, 4)
    assert script.counts() == {"lost-update": 1, "dropped": 1}


def test_a_write_that_overlapped_and_was_over_when_the_message_was_last_seen_did_not_do_it() -> None:
    script = written()
    script.begin_each(3, 1)
    script.ok(3)
    script.ok(1)
    script.read(2, 1, 2, 3, 4)
    script.read(2, 1, 2, 3)
    named(script, "dropped")


def test_the_other_stands_where_the_message_stood() -> None:
    """Numbered by a counter of its own, another process writes over the second message: it stands before the third."""
    script = written()
    script.append(1)
    script.read(2, 1, 2, 3)
    script.append(3)
    script.read(2, 1, 4, 3)
    assert script.counts()["lost-update"] == 1
    assert "process 3 wrote" in script.verdict().anomalies[0].sentence


def test_an_altered_message_is_not_one_that_was_written_over() -> None:
    script = two_sessions()
    script.begin_each(3, 1)
    script.ok(3)
    script.ok(1)
    script.read(2, 1, Element(2, 77))
    assert script.counts() == {"corrupted": 1}


def test_the_other_wrote_back_a_list_from_before_the_message() -> None:
    script = written()
    base = script.read(3, 1, 2)
    script.append(1)
    script.append(3, operation="save", base=base)
    script.read(2, 1, 2, 4)
    said = named(script, "lost-update")
    assert f"meanwhile (event 12), from the list it had read at event {base}" in said


def test_the_other_wrote_back_a_list_that_had_the_message() -> None:
    script = written()
    base = script.read(3, 1, 2)
    script.append(3, operation="save", base=base)
    script.read(2, 1, 3)
    named(script, "dropped")


def test_a_write_to_another_session_goes_over_nothing() -> None:
    script = written()
    script.begin(3, "other")
    script.begin(1)
    script.ok(3)
    script.ok(1)
    script.read(2, 1, 2)
    named(script, "dropped")


def test_a_message_of_the_same_process_in_its_place_is_no_other_writer() -> None:
    script = written()
    script.append(1)
    script.read(2, 1, 2, 3)
    script.append(1)
    script.read(2, 1, 4, 3)
    assert "lost-update" not in script.counts()


def test_a_list_that_the_same_process_saved_is_not_anothers() -> None:
    script = written()
    base = script.read(1, 1, 2)
    script.append(1)
    script.append(1, operation="save", base=base)
    script.read(2, 1, 2, 4)
    named(script, "dropped")


def test_the_other_wrote_back_a_list_it_read_while_the_message_was_written_and_that_lacks_it() -> None:
    script = written()
    script.begin(1)
    script.begin_read(3)
    script.ok(1)
    base = script.end_read(3, 1, 2)
    script.append(3, operation="save", base=base)
    script.read(2, 1, 2, 4)
    named(script, "lost-update")


def test_the_other_wrote_back_a_list_it_read_while_the_message_was_written_and_that_has_it() -> None:
    script = written()
    script.begin(1)
    script.begin_read(3)
    script.ok(1)
    base = script.end_read(3, 1, 2, 3)
    script.append(3, operation="save", base=base)
    script.read(2, 1, 2, 4)
    named(script, "dropped")


def test_the_other_wrote_back_an_old_list_that_it_was_given_late() -> None:
    """Another client sees the message in between: it was there until the old list was saved over it."""
    script = written()
    script.append(1)
    base = script.read(3, 1, 2)
    script.read(2, 1, 2, 3)
    script.append(3, operation="save", base=base)
    script.read(2, 1, 2, 4)
    named(script, "lost-update")


def test_an_old_list_that_is_saved_after_the_message_was_missed_took_nothing() -> None:
    script = written()
    base = script.read(3, 1, 2)
    script.append(1)
    script.read(2, 1, 2)
    script.append(3, operation="save", base=base)
    script.read(2, 1, 2, 4)
    named(script, "dropped")


def test_an_old_list_that_was_read_together_with_the_message_did_not_go_over_it() -> None:
    """Nobody knows when the save took effect, but when a read shows both it is over."""
    script = written()
    base = script.read(3, 1, 2)
    script.append(1)
    script.append(3, operation="save", base=base, outcome="unknown")
    script.read(2, 1, 2, 3, 4)
    script.read(2, 1, 2, 4)
    named(script, "dropped")


def test_a_write_that_was_read_together_with_the_message_did_not_go_over_it() -> None:
    script = written()
    script.begin_each(1, 3)
    script.ok(1)
    script.unknown(3)
    script.read(2, 1, 2, 3, 4)
    script.read(2, 1, 2, 4)
    named(script, "dropped")


def test_one_in_the_wrong_place_that_came_after_the_message_was_missed_did_not_take_it() -> None:
    script = written()
    script.read(2, 1)
    script.append(3)
    script.read(2, 3, 1)
    assert script.counts() == {"dropped": 1, "reorder": 1}


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_one_in_the_wrong_place_that_stood_beside_the_message_did_not_take_it(outcome: str) -> None:
    script = two_sessions()
    script.append(1)
    script.append(3, outcome=outcome)
    script.append(1)
    script.read(2, 2, 1, 3)
    script.read(2, 2, 1)
    assert script.counts() == {"dropped": 1, "reorder": 1}


def test_one_message_that_vanished_alone_is_enough_to_believe_no_overlap() -> None:
    """Also when one that had been read before is missed after it."""
    script = written()
    script.append(1)
    script.append(1)
    script.begin_each(3, 1)
    script.ok(3)
    script.ok(1)
    script.append(1)
    script.read(2, 1, 2, 4, 5, 7)
    script.read(2, 1, 2, 5, 7)
    assert script.counts() == {"dropped": 3}


def test_an_old_list_that_was_seen_before_the_message_was_did_not_go_over_it() -> None:
    script = written()
    base = script.read(3, 1, 2)
    script.append(3, operation="save", base=base, outcome="unknown")
    script.read(2, 1, 2, 3)
    script.append(1)
    script.read(2, 1, 2, 3, 4)
    script.read(2, 1, 2, 3)
    named(script, "dropped")
