"""What is in a read and should not be, or should have been readable; the index against the rows."""

from __future__ import annotations

from recollect.verify.judging.op import Element, ReadAsked
from recollect.verify.judging.verdict import Anomaly

from .history_script import Script, written


def test_an_unknown_write_may_appear_late_or_never() -> None:
    script = written()
    script.append(1, outcome="unknown")
    script.read(2, 0, 1, 2)
    script.read(2, 0, 1, 2, 3)
    script.append(1, outcome="unknown")
    script.read(2, 0, 1, 2, 3)
    assert script.names() == []
    assert script.verdict().unknown_outcomes == 2


def test_an_unknown_write_never_appears_twice() -> None:
    script = written()
    script.append(1, outcome="unknown")
    script.append(1, first=3)
    script.read(2, 0, 1, 2, 3, 3)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("duplicate", "m3")
    assert "twice, although it was appended once (event 8); its write was tried again" in anomaly.sentence


def with_copies(*shown: int) -> Anomaly:
    """What is said of a store without turn ids, where the caller tried m3 again."""
    script = written(abilities=())
    script.append(1, outcome="unknown")
    script.append(1, first=3)
    script.append(1)
    script.read(2, 0, 1, 2, *shown)
    [anomaly] = script.verdict().anomalies
    return anomaly


def test_a_violation_is_told_by_a_copy_that_is_the_store_s_own() -> None:
    """The caller's second attempt explains two copies of m3, and nothing explains those of m4."""
    anomaly = with_copies(3, 3, 4, 4)
    assert (anomaly.first.message, anomaly.count, anomaly.covered) == ("m4", 2, False)
    assert "twice, although it was appended once (event 12)" in anomaly.sentence


def test_more_copies_than_attempts_are_counted() -> None:
    told = with_copies(3, 3, 3, 4).sentence
    assert told.endswith(
        "3 times, although its write was tried only twice: first at event 8, last at event 10."
    )


def test_a_duplicate_counts_once_however_often_it_is_read() -> None:
    script = written()
    script.read(2, 0, 1, 1, 2)
    script.read(2, 0, 1, 1, 2)
    script.read(2, 0, 1, 2)
    script.read(2, 0, 1, 2, 1)
    assert script.counts() == {"duplicate": 1}


def test_at_least_once_targets_may_duplicate_what_was_retried() -> None:
    retried = written(traits=("at_least_once",))
    retried.append(1, outcome="unknown")
    retried.append(1, first=3)
    retried.read(2, 0, 1, 2, 3, 3)
    assert retried.names() == []
    in_doubt = written(traits=("at_least_once",))
    in_doubt.append(1, outcome="unknown")
    in_doubt.read(2, 0, 1, 2, 3, 3)
    assert in_doubt.names() == []
    plain = written(traits=("at_least_once",))
    plain.read(2, 0, 1, 2, 2)
    assert plain.names() == ["duplicate"]


def test_a_failed_write_must_not_appear() -> None:
    script = written()
    script.append(1, outcome="fail")
    script.read(2, 0, 1, 2, 3)
    assert script.names() == ["dirty-read"]


def test_a_write_in_doubt_or_retried_with_success_is_not_dirty() -> None:
    script = written()
    script.append(1, outcome="fail")
    script.append(1, first=3)
    script.append(1, outcome="fail")
    script.append(1, first=4, outcome="unknown")
    script.append(1, outcome="fail")
    script.begin(1, first=5)
    script.read(2, 0, 1, 2, 3, 4, 5)
    assert script.names() == []


def test_another_sessions_message_is_a_leak_even_if_altered() -> None:
    script = written()
    script.append(1, "other")
    script.read(2, 3, session="other")
    script.read(2, 0, 1, 2, Element(3, 99))
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.session, anomaly.first.message) == ("cross-session-leak", "s", "m3")


def test_a_leaked_message_is_not_missing_from_its_own_session() -> None:
    script = written()
    script.append(1, "other")
    script.read(2, 0, 1, 3)
    script.read(2, 0, 1, 2)
    script.read(2, 3, session="other")
    assert script.names() == ["cross-session-leak", "stale-read"]


def test_message_number_zero_can_leak_too() -> None:
    script = Script()
    script.append(1, "other")
    script.append(1)
    for leaked in (0, Element(0, 99)):
        script.read(2, leaked, 1)
        assert script.only().first.message == "m0"


def test_an_altered_message_is_corrupted_and_silent() -> None:
    script = written()
    script.read(2, 0, Element(1, 77), 2)
    script.read(2, 0, 1, 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message, anomaly.silent) == ("corrupted", "m1", True)


def test_message_number_zero_can_be_corrupted_too() -> None:
    script = written()
    script.read(2, Element(0, 77), 1, 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message) == ("corrupted", "m0")


def test_a_message_altered_for_good_is_corrupted_not_lost() -> None:
    script = written()
    script.read(2, 0, Element(1, 77), 2)
    assert script.counts() == {"corrupted": 1}


def test_a_damaged_item_with_its_number_is_loud() -> None:
    script = written()
    script.read(2, 0, Element(1, None, damaged=True), 2)
    script.read(2, 0, 1, 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message, anomaly.silent) == ("corrupted", "m1", False)


def test_a_damaged_item_that_stands_for_nothing_is_still_corruption() -> None:
    script = written()
    script.read(2, 0, 1, 2, Element(None, damaged=True))
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message, anomaly.silent) == ("corrupted", "", False)


def test_phantoms_have_no_number_or_one_that_nobody_was_given() -> None:
    script = written()
    script.read(2, Element(None, text="never said"), 0, 1, 2, Element(9, 9), Element(None, text="nor this"))
    script.read(2, Element(None, text="never said"), 0, 1, 2)
    assert script.counts() == {"phantom": 3}
    assert "never said" in script.verdict().anomalies[0].sentence


def test_phantoms_in_windows() -> None:
    script = written()
    phantom = Element(None, text="boo")
    script.read(2, phantom, 0, 1, 2)
    script.read(2, phantom, 2, ask=ReadAsked(last=2))
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    script.read(2, 0, 1, 2)
    assert script.counts() == {"phantom": 1}


def test_a_number_given_later_is_a_phantom_before() -> None:
    script = written()
    script.read(2, 0, 1, 2, Element(3, 3))
    script.append(1)
    script.read(2, 0, 1, 2, 3)
    assert script.counts() == {"phantom": 1}


def test_forgotten_messages_must_not_be_visible() -> None:
    script = written()
    script.forget(1)
    ended = script.read(2, 0, 1, 2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.count) == ("resurrected", 3)
    assert anomaly.first.events[2] == ended


def test_a_message_never_read_before_its_forget_must_not_appear_after_it() -> None:
    script = written()
    script.append(1)
    script.forget(1)
    script.read(2, 3)
    assert script.counts() == {"resurrected": 1}


def test_strangers_after_a_forget_are_not_resurrected() -> None:
    script = written()
    script.append(1, "other")
    script.read(2, 3, session="other")
    script.forget(1)
    script.read(2, 3, Element(None, text="boo"))
    assert script.names() == ["cross-session-leak", "phantom"]


def test_a_read_that_began_before_the_forget_ended_may_show_them() -> None:
    script = written()
    script.invoke(1, "forget")
    script.begin_read(2)
    script.ok(1)
    script.end_read(2, 0, 1, 2)
    script.read(2)
    assert script.names() == []


def test_what_an_overlapping_read_showed_and_a_later_one_keeps_is_resurrected() -> None:
    script = written()
    script.invoke(1, "forget")
    script.begin_read(2)
    script.begin_read(3)
    script.end_read(3)
    script.ok(1)
    script.end_read(2, 0, 1, 2)
    script.read(2, 0, 1, 2)
    assert script.counts() == {"resurrected": 3}


def test_a_write_in_doubt_may_appear_after_a_forget_unless_it_was_there_before() -> None:
    late = written()
    late.append(1, outcome="unknown")
    late.forget(1)
    late.read(2, 3)
    assert late.names() == []
    seen = written()
    seen.append(1, outcome="unknown")
    seen.read(2, 0, 1, 2, 3)
    seen.forget(1)
    seen.read(2, 3)
    assert seen.names() == ["resurrected"]


def test_a_retry_after_a_forget_writes_anew() -> None:
    script = written()
    script.append(1, outcome="unknown")
    script.read(2, 0, 1, 2, 3)
    script.forget(1)
    script.append(1, first=3)
    script.read(2, 3)
    assert script.names() == []


def test_windows_show_the_resurrected_too() -> None:
    script = written()
    script.forget(1)
    script.read(2, 1, 2, ask=ReadAsked(last=2))
    assert script.counts() == {"resurrected": 2}


def test_a_read_that_raises_is_loud() -> None:
    script = written()
    index = script.fail_read(2, error="ValueError: unknown role")
    anomaly = script.only()
    assert (anomaly.name, anomaly.silent, anomaly.count) == ("unreadable", False, 3)
    assert anomaly.first.events == (index,)
    assert "unknown role" in anomaly.sentence


def test_a_read_that_raises_once_counts_once() -> None:
    script = written()
    script.fail_read(2)
    script.read(2, 0, 1, 2)
    assert script.counts() == {"unreadable": 1}


def test_reads_that_fail_during_a_fault_or_of_nothing_prove_nothing() -> None:
    empty = written()
    empty.fail_read(2, "empty")
    assert empty.names() == []
    down = written()
    down.inject("kill-engine")
    down.writer.engine_stopped()
    down.fail_read(2)
    down.writer.engine_started()
    down.begin_read(2)
    down.heal("kill-engine")
    down.fail(2)
    assert down.names() == []
    timed_out = written()
    timed_out.begin_read(2)
    timed_out.unknown(2)
    assert timed_out.names() == []
    forgotten = written()
    forgotten.forget(1)
    forgotten.fail_read(2)
    assert forgotten.names() == []
    unacknowledged = Script()
    unacknowledged.begin_read(2)
    unacknowledged.append(1)
    unacknowledged.fail(2)
    assert unacknowledged.names() == []


def test_reads_that_fail_beside_a_forget_or_after_a_refusal_prove_nothing() -> None:
    beside = written()
    beside.invoke(1, "forget")
    beside.fail_read(2)
    beside.fail(1)
    assert beside.names() == []
    refused = written()
    refused.writer.engine_refused("bad file format")
    refused.fail_read(2)
    assert refused.names() == ["refuses-to-start"]


def test_unreadable_messages_are_counted_without_those_already_lost() -> None:
    script = written()
    script.read(2, 0, 1)
    script.fail_read(2)
    assert script.counts() == {"unreadable": 2, "dropped": 1}


def test_a_context_read_that_raises_is_unreadable_too() -> None:
    script = written()
    script.invoke(2, "context")
    script.fail(2)
    assert script.names() == ["unreadable"]


def test_an_engine_that_refuses_to_start() -> None:
    script = written()
    script.inject("power-loss")
    script.writer.engine_stopped()
    index = script.writer.engine_refused("Bad file format reading the append only file")
    anomaly = script.only()
    assert (anomaly.name, anomaly.silent, anomaly.first.fault) == ("refuses-to-start", False, "power-loss")
    assert anomaly.first.events == (index,)


def test_index_and_rows() -> None:
    script = written()
    script.search(2, [0, 1, 2], [2, 1, 0])
    assert script.names() == []
    index = script.search(2, [0, 1, 2], [0, 2])
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message, anomaly.first.events) == ("index-divergence", "m1", (index,))
    assert "not found by search" in anomaly.sentence
    reverse = written()
    reverse.search(2, [0, 2], [0, 1, 2])
    assert "not listed" in reverse.only().sentence


def test_an_index_may_lag_behind_what_is_being_written_or_forgotten() -> None:
    script = written()
    script.begin(1)
    script.search(2, [0, 1, 2, 3], [0, 1, 2])
    script.ok(1)
    script.invoke(1, "forget")
    script.search(2, [0, 1, 2, 3], [])
    script.ok(1)
    assert script.names() == []
    script.search(2, [], [1])
    assert script.names() == ["index-divergence"]


def test_a_search_proves_nothing_of_unknown_numbers_or_after_a_doubtful_forget() -> None:
    script = written()
    script.search(2, [0, 1, 2], [0, 1, 2, 99])
    assert script.names() == []
    script.forget(1, outcome="unknown")
    script.search(2, [0, 1, 2], [])
    assert script.names() == []


def test_a_search_that_began_before_the_acknowledgement_proves_nothing() -> None:
    script = written()
    script.begin(1)
    script.invoke(2, "search")
    script.ok(1)
    script.writer.ok_search(2, [0, 1, 2, 3], [0, 1, 2])
    assert script.names() == []


def test_a_damaged_item_stands_for_what_its_own_read_misses() -> None:
    script = written()
    script.read(2, 0, 1)
    script.read(2, 0, Element(None, damaged=True))
    assert script.firsts() == {"corrupted": "m1", "dropped": "m2"}


def test_a_damaged_item_does_not_stand_for_a_message_that_leaked() -> None:
    script = written()
    script.append(1, "other")
    script.read(2, 3, 0, session="other")
    script.read(2, Element(None, damaged=True), 2)
    assert script.firsts() == {"cross-session-leak": "m0", "corrupted": "m1"}


def test_message_number_zero_leaks_alone_when_altered() -> None:
    script = Script()
    script.append(1, "other")
    script.append(1)
    script.read(2, Element(0, 99), 1)
    anomaly = script.only()
    assert (anomaly.name, anomaly.first.message, anomaly.count) == ("cross-session-leak", "m0", 1)


def test_a_failed_write_that_leaked_is_a_leak() -> None:
    script = written()
    script.append(1, outcome="fail")
    script.read(2, 0, 1, 2, 3)
    script.append(1, "other")
    script.read(2, 4, 3, session="other")
    assert script.names() == ["cross-session-leak"]


def test_what_a_message_is_besides_its_text_is_said() -> None:
    script = Script()
    script.append(1, count=2, contents=("", "a tool's result"))
    script.append(1)
    script.read(2, 0, 2)
    script.read(2, 0, 2)
    sentence = script.only().sentence
    assert 'message m1 (a tool\'s result) of session "s", acknowledged at' in sentence


def test_a_changed_message_is_named_once() -> None:
    script = Script()
    script.append(1, contents=("a tool call",))
    script.read(2, Element(0, 99, text="a tool call: arguments: '1' came back as '2'"))
    sentence = script.only().sentence
    assert sentence.count("a tool call") == 1
    assert sentence.endswith("metadata (arguments: '1' came back as '2').")
