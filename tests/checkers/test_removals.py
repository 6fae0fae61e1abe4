"""Messages that a retract or a replace removes: gone on purpose, and gone for good."""

from __future__ import annotations

import pytest

from recollect.verify.judging.op import ReadAsked
from recollect.verify.judging.steps import steps_of

from .history_script import Script, written

EVERYSEC: dict[str, object] = {"policy": "aof-everysec", "fault": "power-loss"}


def test_what_was_retracted_is_not_missed() -> None:
    script = written()
    script.retract(1, 1)
    script.read(2, 0, 2)
    script.read(2, 0, 2, ask=ReadAsked(last=2))
    verdict = script.verdict()
    assert verdict.anomalies == ()
    assert (verdict.kept, verdict.lost, verdict.forgotten) == (2, 0, 1)
    assert "resurrected" in verdict.covered


def test_what_was_not_retracted_is_lost() -> None:
    script = written()
    script.retract(1, 1)
    script.read(2, 0)
    assert script.firsts() == {"dropped": "m2"}


@pytest.mark.parametrize("ask", [None, ReadAsked(last=2)])
def test_a_retracted_message_that_is_there_is_resurrected(ask: ReadAsked | None) -> None:
    script = written()
    done = script.retract(1, 2)
    script.read(2, 1, 2, ask=ask) if ask else script.read(2, 0, 1, 2)
    found = script.only()
    assert (found.name, found.count, found.first.message) == ("resurrected", 1, "m2")
    assert f"its removal had been acknowledged at event {done}" in found.sentence


def test_one_that_was_gone_and_came_back_is_resurrected() -> None:
    script = written()
    script.retract(1, 0)
    script.read(2, 1, 2)
    script.read(2, 0, 1, 2)
    assert script.counts() == {"resurrected": 1}


def test_a_read_that_began_before_the_acknowledgement_may_show_it() -> None:
    script = written()
    script.begin_retract(1, 1)
    script.begin_read(2)
    script.ok(1)
    script.end_read(2, 0, 1, 2)
    script.read(2, 0, 2)
    assert script.names() == []


def test_a_write_that_is_tried_again_after_it_may_store_it_again() -> None:
    script = Script()
    first = script.append(1, outcome="unknown")
    script.read(2, first)
    script.retract(2, first)
    script.append(1, first=first)
    script.read(2, first)
    assert "resurrected" not in script.names()


@pytest.mark.parametrize("shown", [(0, 1, 2), (0, 2)])
def test_a_retraction_in_doubt_may_have_happened_or_not(shown: tuple[int, ...]) -> None:
    script = written()
    script.retract(1, 1, outcome="unknown")
    script.read(2, *shown)
    verdict = script.verdict()
    assert (verdict.anomalies, verdict.unknown_outcomes) == ((), 1)


def test_one_that_failed_removed_nothing() -> None:
    script = written()
    script.begin_retract(1, 1)
    script.read(2, 0, 2)
    script.fail(1, "Conflict")
    script.read(2, 0, 2)
    assert script.firsts() == {"dropped": "m1"}


def test_one_that_failed_beside_one_in_doubt_proves_nothing() -> None:
    script = written()
    script.retract(1, 1, outcome="unknown")
    script.retract(2, 1, outcome="fail")
    script.read(2, 0, 2)
    assert script.names() == []


def test_what_was_replaced_is_gone_for_good() -> None:
    script = written()
    new = script.replace(1, 0, 1, 2, count=2)
    script.read(2, new, new + 1)
    assert script.names() == []
    script.read(2, 1, new, new + 1)
    assert script.firsts() == {"resurrected": "m1"}


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ((0, 1, 2), []),  # it did not happen
        ((3, 4), []),  # it did
        ((), ["silent-reset"]),
        ((2,), ["hole"]),
        ((0,), ["lost-tail"]),
        ((3,), ["torn-turn"]),
    ],
)
def test_a_replace_that_was_cut_off_happened_as_a_whole_or_not_at_all(
    shown: tuple[int, ...], names: list[str]
) -> None:
    script = written(fault="kill-app")
    script.begin(1, count=2, operation="replace", dropped=(0, 3))
    script.inject("kill-app")
    script.unknown(1)
    script.heal("kill-app")
    script.read(2, *shown)
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == names
    assert verdict.status == ("violated" if names else "held")


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ((0, 1, 2), []),  # none of them happened
        ((), ["silent-reset"]),  # one of them happened by half
        ((4,), []),  # the second did, as a whole
        ((2,), ["hole"]),
    ],
)
def test_so_did_several_that_were_to_replace_the_same(shown: tuple[int, ...], names: list[str]) -> None:
    script = written(fault="kill-app")
    for process in (1, 3, 4):
        script.begin(process, operation="replace", dropped=(0, 3))
        script.inject("kill-app")
        script.unknown(process)
        script.heal("kill-app")
    script.read(2, *shown)
    assert script.names() == names


def test_what_a_second_change_may_have_removed_is_not_held_against_one_in_doubt() -> None:
    script = written()
    script.replace(1, 0, 1, 2, outcome="unknown")
    script.retract(2, 0, outcome="unknown")
    script.read(2, 1, 2)
    assert script.names() == []


def test_a_read_that_began_before_it_was_cut_off_does_not_say_whether_it_happened() -> None:
    script = written()
    script.begin(1, operation="replace", dropped=(0, 3))
    script.begin_read(2)
    script.unknown(1)
    script.end_read(2, 3)
    script.read(2, 3)
    assert script.names() == []


def test_a_removal_may_be_the_tail_that_a_promise_lets_go() -> None:
    script = written(3, **EVERYSEC)
    script.retract(1, 1)
    script.crash("power-loss")
    script.read(2, 0, 1, 2)
    verdict = script.verdict()
    assert (verdict.status, script.names()) == ("documented-loss", ["resurrected"])


def test_but_not_one_that_was_older_than_the_window() -> None:
    script = written(3, **EVERYSEC)
    script.retract(1, 1)
    script.wait(3)
    script.crash("power-loss")
    script.read(2, 0, 1, 2)
    assert script.verdict().status == "violated"


def test_nor_one_that_was_acknowledged_as_on_the_disk() -> None:
    script = written(3, **EVERYSEC)
    script.retract(1, 1, claim="fsynced")
    script.crash("power-loss")
    script.read(2, 0, 1, 2)
    assert script.verdict().status == "violated"


def test_nor_one_that_no_fault_explains() -> None:
    script = written(3, **EVERYSEC)
    script.retract(1, 1)
    script.read(2, 0, 1, 2)
    script.crash("power-loss")
    script.read(2, 0, 2)
    assert script.verdict().status == "violated"


def test_nor_one_that_was_written_before_what_is_kept() -> None:
    script = written(3, **EVERYSEC)
    script.retract(1, 1)
    later = script.append(1)
    script.crash("power-loss")
    script.read(2, 0, 1, 2, later)
    assert script.verdict().status == "violated"


def test_what_was_written_after_the_crash_says_nothing_of_the_tail() -> None:
    script = written(3, **EVERYSEC)
    script.retract(1, 1)
    script.crash("power-loss")
    later = script.append(1)
    script.read(2, 0, 1, 2, later)
    assert script.verdict().status == "documented-loss"


def forgotten(wait_s: float = 0.0, fault: str = "power-loss", **header: object) -> Script:
    """A session that is there again after a crash, although it was forgotten."""
    script = written(3, **(EVERYSEC | header))
    script.forget(1)
    script.wait(wait_s)
    script.crash(fault)
    script.read(2, 0, 1, 2)
    return script


def test_a_forget_may_be_the_tail_too() -> None:
    script = forgotten()
    assert (script.verdict().status, script.names()) == ("documented-loss", ["resurrected"])
    assert "with power-loss in between" in script.only().sentence


def test_a_forget_older_than_the_window_may_not() -> None:
    assert forgotten(wait_s=3).verdict().status == "violated"


def test_nor_where_nothing_may_be_lost() -> None:
    assert forgotten(policy="aof-always").verdict().status == "violated"


def test_nor_a_forget_that_no_fault_explains() -> None:
    script = written(3, **EVERYSEC)
    script.forget(1)
    script.read(2, 0, 1, 2)
    script.crash("power-loss")
    script.read(2)
    assert script.verdict().status == "violated"


def test_nor_one_after_which_the_session_went_on_and_was_kept() -> None:
    script = written(3, **EVERYSEC)
    script.forget(1)
    later = script.append(1)
    script.crash("power-loss")
    script.read(2, 0, 1, 2, later)
    assert script.verdict().status == "violated"


def test_a_lagging_replica_may_show_it_for_a_while() -> None:
    script = written(engine="redis", policy="aof-always", fault="replica-lag")
    script.inject("replica-lag")
    script.retract(1, 1)
    script.read(2, 0, 1, 2)
    script.heal("replica-lag")
    script.read(2, 0, 2)
    assert script.verdict().status == "documented-loss"


def test_a_replace_that_did_not_look_at_its_position_is_a_lost_update() -> None:
    script = written()
    base = script.read(3, 0, 1, 2)
    script.append(1)
    new = script.replace(3, 0, 1, 2, base=base, expect=3)
    script.read(2, new)
    assert script.firsts() == {"lost-update": "m3"}


def test_a_position_that_was_lost_may_be_expected_again() -> None:
    script = written(3, **EVERYSEC)
    lost = script.replace(1, 0, 1, 2, expect=3)
    script.crash("power-loss")
    script.read(2, 0, 1, 2)
    again = script.replace(2, 0, 1, 2, expect=3)
    script.read(2, again)
    assert script.counts() == {"lost-tail": 1, "resurrected": 3}, lost


def test_what_leaked_into_a_list_is_not_removed_from_its_own_session() -> None:
    script = written()
    script.append(1, "other")
    script.read(2, 3, session="other")
    script.replace(1, 0, 1, 2, 3)
    script.read(2, session="other")
    script.read(2, 4)
    assert script.firsts()["dropped"] == "m3"


def test_they_are_told_step_by_step() -> None:
    script = written()
    script.retract(1, 1)
    script.replace(2, 0, 2, count=2, expect=4)
    script.read(2, 1, 3, 4)
    told = [step.text for step in steps_of(script.history(), script.only().first)]
    assert told[-3:] == ["retracts m1", "replaces m0, m2 with m3, m4, expecting 4", "reads: m1, m3, m4"]


def test_what_was_never_acknowledged_is_not_missed_after_a_replace_in_doubt() -> None:
    script = written(1)
    doubtful = script.append(1, outcome="unknown")
    script.read(2, 0, doubtful)
    script.replace(2, 0, doubtful, outcome="unknown")
    script.read(2, 0)
    assert script.names() == []


def test_a_session_that_was_emptied_on_purpose_has_nothing_that_a_read_could_hide() -> None:
    script = Script()
    script.append(1)
    script.retract(1, 0)
    script.fail_read(2)
    assert script.names() == []


def test_what_is_taken_back_twice_is_gone_once() -> None:
    script = Script()
    script.append(1, count=2)
    script.retract(1, 0)
    script.retract(2, 0)
    script.fail_read(2)
    assert script.names() == ["unreadable"]


def test_what_was_never_acknowledged_is_not_missed_after_a_retraction_that_failed() -> None:
    script = Script()
    script.append(1)
    doubt = script.append(1, outcome="unknown")
    script.retract(1, doubt, outcome="fail")
    script.read(2, 0)
    assert script.names() == []


def test_a_session_that_nobody_read_says_nothing_of_a_replace_in_doubt() -> None:
    script = Script()
    script.append(1, count=3)
    script.begin(1, operation="replace", dropped=(0, 3))
    script.unknown(1)
    script.append(2, "other")
    script.read(2, 4, session="other")
    assert script.names() == []


def test_a_number_that_nobody_was_given_can_be_replaced() -> None:
    script = Script()
    script.append(1)
    script.begin(1, operation="replace", dropped=(0, 1, 50, 2))
    script.ok(1)
    script.read(2, 1)
    assert script.names() == []


def where_messages_come_late() -> Script:
    """The first is seen late; the second has not been seen yet."""
    script = Script()
    script.append(1)
    script.read(2)
    script.read(2, 0)
    script.append(1)
    script.read(2, 0)
    return script


def test_what_a_read_missed_before_it_was_forgotten_was_late_where_messages_come_late() -> None:
    script = where_messages_come_late()
    script.forget(1)
    script.read(2)
    assert script.counts() == {"stale-read": 1}


def test_but_it_was_dropped_where_nothing_else_comes_late() -> None:
    script = written()
    script.append(1)
    script.read(2, 0, 1, 2)
    script.forget(1)
    script.read(2)
    assert script.firsts() == {"dropped": "m3"}


def test_and_where_other_messages_are_lost_for_good_those_are_told() -> None:
    script = where_messages_come_late()
    script.read(2, 0)
    assert sorted(script.names()) == ["dropped", "stale-read"]


@pytest.mark.parametrize("outcome", ["unknown", "ok"])
def test_what_a_read_missed_before_it_was_retracted_was_late_too(outcome: str) -> None:
    script = where_messages_come_late()
    script.retract(1, 1, outcome=outcome)
    script.read(2, 0)
    assert script.counts() == {"stale-read": 1}


def test_a_forget_that_failed_removed_nothing() -> None:
    script = where_messages_come_late()
    script.forget(1, outcome="fail")
    script.read(2, 0)
    assert script.firsts()["dropped"] == "m1"
