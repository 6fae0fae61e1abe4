"""A schedule as people read it."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
import pytest

from recollect.verify.explore.interleavings.results import FailedSchedule
from recollect.verify.explore.interleavings.telling import columns, conclusion, sentence, steps_taken, svg
from recollect.verify.explore.interleavings.world import LoggedStep
from recollect.verify.judging.verdict import Anomaly, WitnessEvents

STEPS = (
    LoggedStep("A", "begin", "append m0"),
    LoggedStep("A", "arrive", "GET chat:s0", "reads nothing"),
    LoggedStep("B", "begin", "append m1"),
    LoggedStep("B", "arrive", "SET <chat>:s0", "writes m1"),
    LoggedStep("B", "deliver", "SET <chat>:s0"),
    LoggedStep("B", "end", "ok"),
    LoggedStep("A", "cancel", ""),
    LoggedStep("A", "end", "cancelled"),
    LoggedStep("later", "end", "[m0]"),
)


def failed(name: str, told: str, message: str = "", program: str = "a | a") -> FailedSchedule:
    anomaly = Anomaly(name, 1, True, WitnessEvents(message=message), told)
    return FailedSchedule(
        program=program, schedule="AABB", anomalies=(anomaly,), steps=STEPS, preemptions=1, found_at=4
    )


def test_one_sentence() -> None:
    told = sentence(failed("lost-update", "…", "m1"))
    assert told == "A read nothing; B wrote m1 and was acknowledged; A was cancelled: m1 is gone."


def test_what_was_given_up_and_arrives_is_not_what_was_acknowledged() -> None:
    steps = (
        LoggedStep("A", "begin", "append m0"),
        LoggedStep("A", "cancel", ""),
        LoggedStep("A", "end", "cancelled"),
        LoggedStep("A", "begin", "append m1"),
        LoggedStep("A", "arrive", "SET chat:s0", "writes m1"),
        LoggedStep("A", "arrive", "SET chat:s0", "writes m0"),
        LoggedStep("A", "end", "ok"),
    )
    told = sentence(msgspec.structs.replace(failed("dropped", "…", "m1", program="a a"), steps=steps))
    assert told == (
        "A was cancelled; A wrote m1; what A had given up wrote m0; A was acknowledged: m1 is gone."
    )


def test_a_pool_that_resets_a_connection_is_not_told() -> None:
    reset = LoggedStep("A", "arrive", "SELECT pg_advisory_unlock_all(); CLOSE ALL;", "reads nothing")
    failure = failed("lost-update", "…", "m1")
    other = msgspec.structs.replace(failure, steps=(*STEPS[:6], reset._replace(actor="B"), reset, *STEPS[6:]))
    assert (sentence(other), steps_taken(other)) == (sentence(failure), steps_taken(failure))
    assert columns(other.program, other.steps) == columns(failure.program, failure.steps)


def test_what_was_there_before_is_said() -> None:
    told = sentence(failed("dropped", "…", "m1", program="9+ a | a"))
    assert told.startswith("9 messages had been appended; A read nothing; ")


def test_what_the_store_was_used_for_before_is_said() -> None:
    failure = msgspec.structs.replace(failed("dropped", "…", "m1"), past=(("a r", ""), ("a | a", "AB")))
    assert sentence(failure).startswith("the store had been used for 2 schedules before; A read nothing; ")
    assert (failure.programs, failure.schedules) == ("a r; a | a; a | a", ";AB;AABB")


def test_threads_are_told_by_what_they_did_and_where_they_were_interrupted() -> None:
    steps = (
        LoggedStep("A", "begin", "read"),
        LoggedStep("A", "line", "memory.py:14"),
        LoggedStep("A", "end", "[]"),
        LoggedStep("A", "begin", "save m0"),
        LoggedStep("A", "line", "memory.py:11"),
        LoggedStep("B", "begin", "read"),
        LoggedStep("B", "line", "memory.py:14"),
        LoggedStep("B", "end", "[]"),
        LoggedStep("B", "begin", "save m1"),
        LoggedStep("B", "line", "memory.py:11"),
        LoggedStep("B", "end", "ok"),
        LoggedStep("A", "line", "memory.py:12"),
        LoggedStep("A", "end", "ok"),
    )
    found = msgspec.structs.replace(failed("lost-update", "…", "m1", program="s | s"), steps=steps)
    assert sentence(found) == (
        "A read nothing, began to save m0 (memory.py:11); B read nothing, saved m1 and was acknowledged; "
        "A went on (memory.py:12), was acknowledged: m1 is gone."
    )
    shown = [(step.process, step.text) for step in steps_taken(found)]
    assert shown == [
        (0, "read"),
        (0, "→ []"),
        (0, "save m0"),
        (0, "memory.py:11"),
        (1, "read"),
        (1, "→ []"),
        (1, "save m1"),
        (1, "→ ok"),
        (0, "memory.py:12"),
        (0, "→ ok"),
    ]


def test_a_conclusion_has_no_events_and_times() -> None:
    plain = (
        'A read of session "s" (event 7) lacks m0, acknowledged at 0.003 s (event 2), which ended at event 5, '
        "and from the read that ended at event 9."
    )
    told = 'stale-read: a read of session "s" lacks m0, acknowledged, and from the read.'
    assert conclusion(failed("stale-read", plain)) == told


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        (
            "Process 1 read an old state: message m0, acknowledged at 0.003 s (event 2), is not in the read that began "
            "later, at event 4, and ended at event 5; the read that ended at event 9 has it.",
            "B read an old state: message m0, acknowledged, is not in the read that began later; a later read has it.",
        ),
        (
            "Process 0 does not see its own write: message m0 is not in the read that began at event 4 and ended at "
            "event 5; the read that ended at event 9 has it.",
            "A does not see its own write: message m0 is not in the read; a later read has it.",
        ),
        (
            "Process 9 saw message m0, in the read that ended at event 4, and no longer in the one that ended at "
            "event 7.",
            "another process saw message m0, in one read, and no longer in a later one.",
        ),
        (
            "Two reads disagree: in the one that ended at event 4, m1, comes after m0, in the one that ended at "
            "event 6 before it.",
            "two reads disagree: in one, m1, comes after m0, in the other before it.",
        ),
        (
            "Forgotten, but still there: message m0, is in the read from event 4 to 6, although the session's forget "
            "had been acknowledged at event 3.",
            "forgotten, but still there: message m0, is in a later read, although the session's forget had been "
            "acknowledged.",
        ),
        (
            "One context read (events 3 to 8) mixes two states: of m0.",
            "one context read mixes two states: of m0.",
        ),
    ],
)
def test_without_events_it_is_still_a_sentence(sentence: str, told: str) -> None:
    assert conclusion(failed("stale-read", sentence)) == f"stale-read: {told}"


def test_columns_stand_side_by_side() -> None:
    lines = columns("a | a", STEPS).splitlines()
    assert lines[0].split() == ["A", "B"]
    assert lines[2] == "append m0"
    assert lines[3] == "  GET chat:s0: reads nothing"
    assert lines[4].startswith(" " * 48 + "append m1")
    assert not any("deliver" in line for line in lines)
    assert lines[-1].strip().endswith("→ [m0]")


def test_which_messages_were_written_is_never_cut_off() -> None:
    step = LoggedStep("A", "arrive", "INSERT OR REPLACE INTO chat VALUES ('s0', 1, …)", "writes m10–m12")
    (row,) = columns("a | a", [step]).splitlines()[2:]
    assert row == "  INSERT OR REPLACE INTO chat…: writes m10–m12"


def test_lines_of_one_thread_are_one_row() -> None:
    steps = [LoggedStep("A", "line", f"store.py:{number}") for number in (3, 4, 9)]
    assert columns("a | a", steps).splitlines()[2] == "  store.py:3, 4, 9"


def test_the_drawing_is_well_formed_whatever_is_in_it() -> None:
    drawn = svg(failed("lost-update", "…", "m1", program="a | a | a"))
    texts = [
        element.text or "" for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")
    ]
    assert {"A", "B", "C", "engine", "m1 is gone."} <= set(texts)
    assert any("SET <chat>:s0: writes m1" in text for text in texts)
