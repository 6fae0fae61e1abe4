"""Missing messages: when they count, and under which name."""

from __future__ import annotations

from recollect.verify.judging.op import Element, ReadAsked

from .history_script import Script


def written(count: int = 3, **header: object) -> Script:
    """A session with some messages by process 1, seen by process 2, and another session that stays whole."""
    script = Script(**header)
    for message in range(count):
        script.append(1)
        assert script.writer.messages == message + 1
    script.append(1, "other")
    script.read(2, *range(count))
    return script


def test_absence_counts_only_in_reads_begun_after_the_acknowledgement() -> None:
    script = written()
    script.begin(1)
    script.begin_read(2)
    script.ok(1)
    script.end_read(2, 0, 1, 2)
    script.read(2, 0, 1, 2, 4)
    assert script.names() == []


def test_a_message_that_an_overlapping_read_lost_again_is_still_expected() -> None:
    script = written()
    script.begin(1)
    script.begin_read(3)
    script.ok(1)
    script.read(2, 0, 1, 2, 4)
    script.end_read(3, 0, 1, 2)  # began before the acknowledgement: proves nothing
    script.read(3, 0, 1, 2)  # began after it
    assert script.names() == ["dropped"]


def test_a_read_that_began_before_the_loss_was_seen_does_not_bring_the_message_back() -> None:
    script = written(fault="evict")
    script.inject("evict")
    # It looks before the engine drops the session, and is slow to say so.
    script.begin_read(3, ask=ReadAsked(last=2))
    script.read(2)
    script.end_read(3, 1, 2)
    script.heal("evict")
    script.append(1)
    script.read(2, 4)
    script.read(2, 3, session="other")
    assert script.names() == ["lost-tail"]
    assert script.verdict().status == "documented-loss"


def test_a_message_that_was_only_late_is_late_although_an_overlapping_read_had_it_first() -> None:
    script = written()
    script.append(1)
    script.begin_read(3)
    script.read(2, 0, 1, 2)
    script.end_read(3, 0, 1, 2, 4)
    back = script.read(2, 0, 1, 2, 4)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("stale-read", "m4")
    assert anomaly.first.events[-1] == back


def gap(*, overlapping: bool) -> Script:
    """m4 is lost, and m5, which reads showed behind it, is kept; the engine may lose its last commits."""
    script = written(engine="postgres", policy="async-commit", fault="kill-engine")
    script.begin(1)
    if not overlapping:
        script.ok(1)
    script.append(2)
    if overlapping:
        script.ok(1)
    script.read(3, 0, 1, 2, 4, 5)
    script.crash()
    script.read(3, 0, 1, 2, 5)
    script.read(3, 3, session="other")
    return script


def test_a_hole_between_writes_that_overlapped_may_be_the_engine_s_tail() -> None:
    """The sequence gave the lost one its number first; the kept one committed first."""
    script = gap(overlapping=True)
    assert script.names() == ["hole"]
    assert script.verdict().status == "documented-loss"


def test_a_hole_between_writes_one_after_the_other_is_no_tail() -> None:
    script = gap(overlapping=False)
    assert script.names() == ["hole"]
    assert script.verdict().status == "violated"


def test_a_hole_before_a_write_that_began_when_the_lost_one_had_been_read_is_no_tail() -> None:
    script = written(engine="postgres", policy="async-commit", fault="kill-engine")
    script.begin(1)
    script.read(3, 0, 1, 2, 4)
    script.append(2)
    script.ok(1)
    script.read(3, 0, 1, 2, 4, 5)
    script.crash()
    script.read(3, 0, 1, 2, 5)
    script.read(3, 3, session="other")
    assert script.names() == ["hole"]
    assert script.verdict().status == "violated"


def test_missing_without_a_fault_and_without_a_culprit_is_dropped() -> None:
    script = written()
    script.append(1)
    script.append(3)
    ended = script.read(2, 0, 1, 2, 5)
    anomaly = script.only()
    assert (anomaly.name, anomaly.count, anomaly.silent) == ("dropped", 1, True)
    assert anomaly.first.message == "m4"
    assert anomaly.first.events == (anomaly.first.acknowledged, ended)
    assert "nobody overwrote it" in anomaly.sentence
    assert "was in no read" in anomaly.sentence
    assert script.verdict().status == "violated"


def test_a_fault_healed_before_the_acknowledgement_does_not_explain_a_loss() -> None:
    script = written()
    script.crash()
    script.append(1)
    script.read(2, 0, 1, 2)
    assert script.names() == ["dropped"]


def test_a_fault_in_the_middle_of_a_write_explains_its_loss_however_late_the_acknowledgement() -> None:
    """The engine had it, died and came back, and only then the store said so: nobody overwrote it."""
    script = written(policy="rdb", fault="kill-engine")
    script.begin(1)
    struck = script.crash()
    script.ok(1)
    script.read(2, 0, 1, 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.fault_event) == ("lost-tail", struck)
    verdict = script.verdict()
    assert verdict.status == "documented-loss", verdict
    assert verdict.loss_window_s == 0


def test_so_does_a_fault_that_stops_no_engine() -> None:
    """The engine took it and dropped it, the limit was lifted, and only then the acknowledgement arrived."""
    script = written(fault="evict")
    script.begin(1)
    struck = script.inject("evict")
    script.heal("evict")
    script.ok(1)
    script.read(2, 0, 1, 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.fault_event) == ("lost-tail", struck)
    assert script.verdict().status == "documented-loss"


def test_a_fault_still_active_at_the_acknowledgement_does() -> None:
    script = written()
    script.inject("latency")
    script.append(1)
    script.heal("latency")
    script.read(2, 0, 1, 2)
    assert script.names() == ["lost-tail"]


def test_concurrent_writers_are_no_excuse() -> None:
    script = written()
    script.inject("concurrent-writers")
    script.append(1)
    script.read(2, 0, 1, 2)
    assert script.names() == ["dropped"]


def test_an_engine_that_stops_by_itself_is_a_disturbance() -> None:
    script = written()
    script.append(1)
    script.writer.engine_stopped()
    script.writer.engine_started()
    script.read(2, 0, 1, 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.fault) == ("lost-tail", "engine-stopped")


def test_lost_tail_has_its_window_and_fault() -> None:
    script = written()
    struck = script.crash("power-loss")
    script.read(2, 0)
    anomaly = script.only()
    assert (anomaly.name, anomaly.count) == ("lost-tail", 2)
    assert (anomaly.first.message, anomaly.first.fault, anomaly.first.fault_event) == (
        "m1",
        "power-loss",
        struck,
    )
    verdict = script.verdict()
    assert (verdict.acked, verdict.kept, verdict.lost) == (4, 1, 2)
    # m1 was acknowledged at 0.04 s, the power was cut at 0.11 s at the earliest.
    assert verdict.loss_window_s == 0.07
    assert anomaly.first.before_fault_s == 0.07
    assert "0.070 s before power-loss" in anomaly.sentence


def test_what_was_written_after_the_fault_does_not_make_a_tail_a_hole() -> None:
    script = written()
    script.crash()
    script.append(1)
    script.read(2, 0, 1, 4)
    assert script.counts() == {"lost-tail": 1}


def test_a_hole_has_a_later_message_kept() -> None:
    script = written()
    script.crash()
    script.read(2, 0, 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("hole", "m1")
    assert "the later m2 is there" in anomaly.sentence


def test_tail_and_hole_are_told_apart_message_by_message() -> None:
    script = written(5)
    script.crash()
    script.read(2, 0, 3)
    assert script.counts() == {"hole": 2, "lost-tail": 1}


def test_of_two_overlapping_appends_the_reads_say_which_is_later() -> None:
    script = Script()
    script.append(1, "other")
    script.begin_each(1, 2)
    script.ok_each(1, 2)
    script.read(3, 2, 1)
    script.crash()
    script.read(3, 1)
    assert script.names() == ["hole"]


def test_of_two_overlapping_appends_never_read_the_lost_one_is_a_tail() -> None:
    script = Script()
    script.append(1, "other")
    script.begin_each(1, 2)
    script.ok_each(1, 2)
    script.crash()
    script.read(3, 2)
    assert script.names() == ["lost-tail"]


def test_a_missing_message_that_comes_back_is_not_lost() -> None:
    script = written()
    script.crash()
    script.read(2, 0, 1)
    script.read(2, 0, 1, 2)
    assert script.names() == ["stale-read"]
    assert script.verdict().lost == 0


def test_half_an_acknowledged_turn_is_torn() -> None:
    script = written()
    script.append(1, count=3)
    script.crash()
    script.read(2, 0, 1, 2, 4, 5)
    anomaly = script.only()
    assert (anomaly.name, anomaly.count, anomaly.first.message) == ("torn-turn", 1, "m6")
    assert "of the 3 messages of one acknowledged turn" in anomaly.sentence


def test_a_whole_lost_turn_is_not_torn() -> None:
    script = written()
    script.append(1, count=3)
    script.crash()
    script.read(2, 0, 1, 2)
    assert script.counts() == {"lost-tail": 3}


def test_half_a_turn_of_unknown_outcome_is_torn_after_recovery() -> None:
    script = written()
    script.interrupt(1, count=2)
    script.read(2, 0, 1, 2, 4)
    anomaly = script.only()
    assert (anomaly.name, anomaly.count, anomaly.first.message) == ("torn-turn", 1, "m5")
    assert '; message m5 of session "s" is missing after ' in anomaly.sentence.partition("interrupted")[2]
    assert script.verdict().lost == 0


def test_half_a_turn_before_recovery_or_without_fault_proves_nothing() -> None:
    script = written()
    script.append(1, count=2, outcome="unknown")
    script.read(2, 0, 1, 2, 4)
    assert script.names() == []
    script.begin(1, count=2)
    script.inject("kill-app")
    script.unknown(1)
    script.read(2, 0, 1, 2, 4, 6)
    assert script.names() == []


def test_an_unknown_turn_whole_or_absent_is_fine() -> None:
    script = written()
    script.interrupt(1, count=2)
    script.read(2, 0, 1, 2, 4, 5)
    assert script.names() == []


def test_a_fault_over_before_an_unknown_turn_began_is_not_to_blame() -> None:
    script = written()
    script.crash()
    script.append(1, count=2, outcome="unknown")
    script.read(2, 0, 1, 2, 4)
    assert script.names() == []


def test_targets_without_batches_are_not_judged_for_torn_turns() -> None:
    script = written(traits=("no_batches",))
    script.append(1, count=3)
    script.crash()
    script.read(2, 0, 1, 2, 4, 5)
    assert script.names() == ["lost-tail"]


def test_everything_gone_after_a_fault_is_a_silent_reset() -> None:
    script = written()
    script.crash()
    script.append(1)
    script.read(2, 4)
    script.read(2, session="other")
    assert script.counts() == {"silent-reset": 4}
    told = script.verdict().anomalies[0].told
    assert "without anything that was there before" in told  # the first read has what came later
    assert "returned only what was written later" in told


def test_one_session_that_kept_something_rules_a_reset_out() -> None:
    script = written()
    script.crash()
    script.read(2)
    script.read(2, 3, session="other")
    assert script.counts() == {"lost-tail": 3}


def test_everything_gone_without_a_fault_is_a_silent_reset_too() -> None:
    script = written()
    script.read(2)
    script.read(2, session="other")
    assert script.counts() == {"silent-reset": 4}
    assert "Every session came back empty" in script.verdict().anomalies[0].told


def test_a_session_forgotten_by_request_is_no_loss() -> None:
    script = written()
    script.forget(1)
    script.read(2)
    script.read(2, 3, session="other")
    verdict = script.verdict()
    assert verdict.anomalies == ()
    assert (verdict.acked, verdict.kept, verdict.forgotten, verdict.lost) == (4, 1, 3, 0)


def test_what_was_forgotten_unread_is_forgotten() -> None:
    script = Script()
    script.append(1)
    script.forget(1)
    verdict = script.verdict()
    assert (verdict.forgotten, verdict.unchecked, verdict.kept) == (1, 0, 0)


def test_a_failed_forget_excuses_nothing() -> None:
    script = written()
    script.forget(1, outcome="fail")
    script.read(2)
    assert script.names() == ["dropped"]


def test_a_forget_in_flight_excuses_until_it_fails() -> None:
    script = written()
    script.invoke(1, "forget")
    script.read(2)
    script.fail(1)
    script.read(2, 0, 1, 2)
    assert script.names() == []
    script.invoke(1, "forget")
    script.read(2)
    script.fail(1)
    script.read(2)
    assert script.names() == ["dropped"]


def test_after_a_forget_of_unknown_outcome_absence_proves_nothing() -> None:
    script = written()
    script.forget(1, outcome="unknown")
    script.append(1)
    script.read(2)
    verdict = script.verdict()
    assert verdict.anomalies == ()
    assert any("forget ended unknown" in gap for gap in verdict.not_covered)


def test_messages_written_after_a_forget_are_expected() -> None:
    script = written()
    script.forget(1)
    script.append(1)
    script.read(2)
    assert script.names() == ["dropped"]


def test_a_write_that_overlaps_a_forget_may_be_gone() -> None:
    script = written()
    script.invoke(2, "forget")
    script.begin(1)
    script.ok(1)
    script.ok(2)
    script.read(3)
    assert script.names() == []


def test_a_compaction_may_drop_what_it_says() -> None:
    script = written()
    base = script.read(1, 0, 1, 2)
    script.append(1, operation="save", base=base, dropped=(0, 2))
    script.read(2, 2, 4)
    assert script.names() == []


def test_read_modify_write_names_the_read_it_was_built_on() -> None:
    script = written()
    old = script.read(3, 0, 1, 2)
    script.append(1)
    script.append(3, operation="save", base=old)
    seen = script.read(4, 0, 1, 2, 5)
    script.append(4, operation="save", base=seen)
    script.read(2, 0, 1, 2, 5, 6)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("lost-update", "m4")
    assert (
        f"process 3 wrote to the session meanwhile (event {old + 3}), from the list it had read at event {old}"
        in (anomaly.sentence)
    )


def test_a_list_whose_reading_was_under_way_when_the_message_was_acknowledged() -> None:
    script = written()
    script.begin_read(3)
    script.append(1)
    old = script.end_read(3, 0, 1, 2)
    script.append(3, operation="save", base=old)
    script.read(2, 0, 1, 2, 5)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("lost-update", "m4")


def test_a_list_that_was_read_with_the_message_did_not_overwrite_it() -> None:
    script = written()
    script.begin_read(3)
    script.append(1)
    script.read(2, 0, 1, 2, 4)
    old = script.end_read(3, 0, 1, 2, 4)
    script.append(3, operation="save", base=old)
    script.read(2, 0, 1, 2, 5)
    assert script.only().name == "dropped"


def test_compare_and_set_that_lets_two_writers_through() -> None:
    script = written()
    script.append(1, expect=3)
    script.append(2, expect=3)
    script.read(3, 0, 1, 2, 4, 5)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("lost-update", "m5")
    assert "Compare-and-set" in anomaly.sentence


def test_compare_and_set_with_other_expectations_or_sessions_is_fine() -> None:
    script = written()
    script.append(1, expect=3)
    script.append(2, expect=4)
    script.append(2, "other", expect=3)
    script.begin(1, expect=3)
    script.fail(1, "Conflict")
    script.read(3, 0, 1, 2, 4, 5)
    assert script.names() == []


def test_compare_and_set_starts_anew_after_a_forget() -> None:
    script = written()
    script.append(1, expect=3)
    script.forget(1)
    script.append(2, expect=3)
    script.read(3, 5)
    assert script.names() == []


def test_single_writer_targets_are_judged_only_where_there_was_one() -> None:
    shared = written(traits=("single_writer",))
    shared.append(3)
    shared.read(2, 0, 1, 4)
    assert shared.names() == []
    alone = written(traits=("single_writer",))
    alone.read(2, 0, 1)
    assert alone.names() == ["dropped"]


def test_hidden_rows_are_not_lost() -> None:
    script = written()
    script.crash()
    ended = script.read(2, 0)
    counted = script.count(3, 3)
    anomaly = script.only()
    assert (anomaly.name, anomaly.count) == ("hidden", 2)
    assert anomaly.first.events[1:] == (ended, counted)


def test_as_many_are_hidden_as_the_engine_has_rows_too_many() -> None:
    script = written()
    script.crash()
    script.read(2, 0)
    script.count(3, 2)
    assert script.counts() == {"hidden": 1, "lost-tail": 1}


def test_a_count_proves_nothing_before_the_read_or_after_another_write() -> None:
    before = written()
    before.count(3, 3)
    before.crash()
    before.read(2, 0)
    assert before.names() == ["lost-tail"]
    written_since = written()
    written_since.crash()
    written_since.read(2, 0)
    written_since.append(1)
    written_since.count(3, 2)
    assert written_since.names() == ["lost-tail"]
    writing = written()
    writing.begin(1)
    writing.crash()
    writing.read(2, 0)
    writing.count(3, 3)
    assert writing.names() == ["lost-tail"]


def test_rows_that_an_unknown_write_may_have_added_hide_nothing() -> None:
    script = written()
    script.append(1, outcome="unknown")
    script.crash()
    script.read(2, 0, 1)
    script.count(3, 3)
    assert script.names() == ["lost-tail"]


def test_unread_messages_are_counted_as_unchecked() -> None:
    script = written()
    script.append(1)
    verdict = script.verdict()
    assert (verdict.acked, verdict.kept, verdict.unchecked) == (5, 3, 2)


def test_what_only_a_window_showed_is_kept() -> None:
    script = Script()
    script.append(1)
    script.append(1)
    script.read(2, 1, ask=ReadAsked(last=1))
    verdict = script.verdict()
    assert (verdict.acked, verdict.kept, verdict.unchecked, verdict.forgotten) == (2, 1, 1, 0)


def test_doubled_and_strange_elements_do_not_change_the_account() -> None:
    script = written()
    script.read(2, 0, Element(None, text="boo"), 1, 1, 2)
    verdict = script.verdict()
    assert (verdict.acked, verdict.kept, verdict.unchecked) == (4, 3, 1)


def test_late_in_a_window_is_kept_if_the_whole_read_has_it() -> None:
    script = written(5)
    script.read(2, 2, 3, ask=ReadAsked(last=2))
    script.read(2, 0, 1, 2, 3, 4)
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == ["stale-read"]
    assert (verdict.kept, verdict.lost, verdict.forgotten) == (5, 0, 0)


def test_a_damaged_item_stands_for_a_missing_message() -> None:
    script = written()
    script.read(2, 0, Element(None, damaged=True), 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message, anomaly.silent) == ("corrupted", "m1", False)


def test_damaged_items_that_hide_the_rest_make_a_session_unreadable() -> None:
    script = written()
    script.read(2, Element(None, damaged=True))
    assert script.counts() == {"unreadable": 2, "corrupted": 1}
