"""A replace or a retract that a reader sees by half: neither the state before it nor the one after."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recollect.verify.judging.op import Element, ReadAsked

from .history_script import Script, written

Shown = tuple[int, ...]


def replacing(script: Script, *shown: int | Element, ask: ReadAsked | None = None) -> Script:
    """A read while messages 0 to 2 are being replaced with 3 and 4."""
    script.begin(1, count=2, operation="replace", dropped=(0, 3))
    script.read(2, *shown, ask=ask)
    script.ok(1)
    script.read(2, 3, 4)
    return script


@pytest.mark.parametrize("shown", [(0, 1, 2), (3, 4)])
def test_the_state_before_and_the_state_after_are_both_right(shown: Shown) -> None:
    for workload in ("changes", "interleavings"):
        assert replacing(written(workload=workload), *shown).names() == []


@pytest.mark.parametrize("shown", [(), (1, 2), (3,), (0, 1, 2, 3, 4), (2, 3, 4), (0, 3)])
def test_every_other_state_is_half_a_replace(shown: Shown) -> None:
    for workload in ("changes", "interleavings"):
        script = replacing(written(workload=workload), *shown)
        assert script.counts() == {"torn-turn": 1}
        assert script.verdict().status == "violated"


def test_its_sentence_says_what_the_read_has() -> None:
    found = replacing(written(), 1).only()
    assert found.sentence == (
        "Half a replace: the read that ended at event 10 has 1 of 3 old and 0 of 2 new messages of one replace "
        "(event 8), and no fault was near."
    )
    assert (found.first.message, found.first.events) == ("m0", (8, 10))


def test_each_replace_counts_once_in_the_first_read_that_has_half_of_it() -> None:
    script = written()
    script.begin(1, operation="replace", dropped=(0, 3))
    first = script.read(2)
    script.read(2)
    assert script.only().first.events[1] == first
    script.ok(1)
    script.begin(1, operation="replace", dropped=(3, 1))
    script.read(2)
    script.ok(1)
    script.read(2, 4)
    assert script.counts() == {"torn-turn": 2}


@pytest.mark.parametrize(
    ("shown", "names"), [((0, 1, 2), []), ((0,), []), ((0, 1), ["torn-turn"]), ((0, 2), ["torn-turn"])]
)
def test_a_retract_takes_all_or_nothing(shown: Shown, names: list[str]) -> None:
    script = written()
    script.begin_retract(1, 1, 2)
    script.read(2, *shown)
    script.ok(1)
    script.read(2, 0)
    assert script.names() == names
    if names:
        assert "has 1 of 2 messages that one retract takes away (event 8)" in script.only().sentence


def test_it_is_seen_also_if_it_fails_or_ends_in_doubt() -> None:
    for outcome in ("fail", "unknown"):
        script = written()
        script.begin(1, operation="replace", dropped=(0, 3))
        script.read(2)
        getattr(script, outcome)(1)
        script.read(2, 0, 1, 2)
        assert script.names() == ["torn-turn"], outcome


def test_it_is_seen_also_if_it_never_ends() -> None:
    script = written()
    script.begin(1, operation="replace", dropped=(0, 3))
    script.read(2)
    assert script.names() == ["torn-turn"]


# ---- what has, or may have, another reason


def another_replace(script: Script) -> None:
    script.begin(3, operation="replace", dropped=(0, 3))
    script.ok(3)


def retract_in_doubt(script: Script) -> None:
    script.retract(3, 2, outcome="unknown")


def forget(script: Script) -> None:
    script.forget(3)


def kill(script: Script) -> None:
    script.crash("kill-engine")


@pytest.mark.parametrize("other", [another_replace, retract_in_doubt, forget, kill])
def test_what_something_else_may_have_taken_is_not_held_against_it(other: Callable[[Script], None]) -> None:
    script = written()
    script.begin(1, operation="replace", dropped=(0, 3))
    other(script)
    script.read(2)
    script.ok(1)
    assert "torn-turn" not in script.names()


def test_a_change_that_failed_is_no_excuse() -> None:
    script = written()
    script.begin(1, operation="replace", dropped=(0, 3))
    script.begin(3, operation="replace", dropped=(0, 3))
    script.read(2)
    script.fail(3, "Conflict")
    script.ok(1)
    script.read(2, 3)
    assert script.names() == ["torn-turn"]


def test_nor_is_one_that_was_over() -> None:
    script = written()
    script.retract(1, 0)
    script.begin(1, operation="replace", dropped=(1, 2))
    script.read(2)
    script.ok(1)
    script.read(2, 3)
    assert script.names() == ["torn-turn"]


@pytest.mark.parametrize("before", [another_replace, forget])
def test_a_change_that_comes_too_late_names_what_is_gone_already(before: Callable[[Script], None]) -> None:
    script = written()
    before(script)
    script.begin(1, operation="replace", dropped=(0, 3))
    script.read(2, *range(3, script.writer.messages - 1))
    script.fail(1, "Conflict")
    assert script.names() == []


def test_so_does_one_that_names_what_a_retract_took() -> None:
    script = written()
    script.retract(3, 1)
    script.begin_retract(1, 1, 2)
    script.read(2, 0, 2)
    script.fail(1, "Conflict")
    assert script.names() == []


def test_a_forget_in_doubt_may_come_late() -> None:
    script = Script()
    script.forget(3, outcome="unknown")
    script.append(1)
    script.read(2, 0)
    script.begin(1, operation="replace", dropped=(0, 1))
    script.read(2)
    script.ok(1)
    script.read(2, 1)
    assert script.names() == []


def test_a_read_before_it_began_has_no_part_in_it() -> None:
    script = written()
    script.read(2, 0, 1)
    script.read(2, 0, 1, 2)
    script.replace(1, 0, 1, 2)
    script.read(2, 3)
    assert script.names() == ["stale-read"]


def test_a_save_that_leaves_messages_out_is_judged_by_what_it_lost() -> None:
    script = written()
    script.begin(1, operation="save", dropped=(0, 2))
    script.read(2, 1, 2)
    script.ok(1)
    script.read(2, 2, 3)
    assert script.names() == []


def test_new_messages_alone_prove_nothing() -> None:
    script = written(2)
    script.begin(3)
    script.read(1, 0, 1, 2)
    script.begin(1, count=2, operation="replace", dropped=(2, 1))
    script.read(2, 0, 1, 3)
    assert script.names() == []


def test_nor_is_one_in_another_session() -> None:
    script = written()
    other = script.append(3, "t")
    script.begin(3, "t", operation="replace", dropped=(other, 1))
    script.begin(1, operation="replace", dropped=(0, 3))
    script.read(2)
    script.ok(1)
    assert script.names() == ["torn-turn"]


def test_a_message_that_was_not_acknowledged_when_the_read_began_may_be_missing() -> None:
    script = written(2)
    script.begin(3)
    script.read(1, 0, 1, 2)
    script.begin_read(2)
    script.ok(3)
    script.begin(1, operation="replace", dropped=(0, 3))
    script.end_read(2, 0, 1)
    script.ok(1)
    script.read(2, 3)
    assert script.names() == []


def test_a_write_that_was_tried_again_may_have_stored_it_again() -> None:
    script = written(2)
    script.append(3, outcome="unknown")
    script.append(3, first=2)
    script.read(2, 0, 1, 2)
    script.begin(1, operation="replace", dropped=(0, 3))
    script.read(2, 2, 3)
    script.ok(1)
    script.read(2, 3)
    assert script.names() == []


def test_a_message_that_is_changed_is_not_missing() -> None:
    script = replacing(written(), 0, 1, Element(2, checksum=99))
    assert script.names() == ["corrupted"]


def test_what_expires_may_be_gone() -> None:
    script = Script()
    script.append(1, count=2, retention_s=1.0)
    script.read(2, 0, 1)
    script.begin(1, operation="replace", dropped=(0, 2))
    script.wait(2)
    script.read(2)
    script.ok(1)
    assert "torn-turn" not in script.names()


def test_a_window_has_only_a_part() -> None:
    assert replacing(written(), 2, ask=ReadAsked(last=1)).names() == []


def test_a_target_that_keeps_only_the_last_ones_may_show_fewer() -> None:
    assert "torn-turn" not in replacing(written(keeps_last=2), 1, 2).names()


def test_one_that_does_not_claim_atomic_turns_is_not_judged() -> None:
    assert "torn-turn" not in replacing(written(traits=("no_batches",))).names()


def test_a_read_that_began_after_it_is_judged_by_what_is_missing() -> None:
    script = written()
    script.replace(1, 0, 1, 2)
    script.read(2)
    script.read(2, 3)
    assert script.names() == ["stale-read"]
