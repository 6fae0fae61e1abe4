"""A turn over several sessions: it is in all of them or in none, and its parts belong to one client."""

from __future__ import annotations

import msgspec
import pytest

from recollect.verify.judging.gathering import collect
from recollect.verify.judging.history import HistoryError
from recollect.verify.judging.op import WriteAsked, part_process
from recollect.verify.judging.steps import steps_of

from .history_script import Script

WRITER, READER = 1, 2
BESIDE = part_process(WRITER, 1)


def begin(script: Script, **fields: object) -> None:
    """Message 0 in "s" and message 1 in "t", one turn."""
    for process, session, number in ((WRITER, "s", 0), (BESIDE, "t", 1)):
        write = WriteAsked(number, (number,), "t0", spans=0)
        script.step()
        script.writer.invoke_write(process, session, "append", msgspec.structs.replace(write, **fields))


def ended(how: str, fault: str = "kill-app", **header: object) -> Script:
    script = Script(fault=fault, **header)
    begin(script)
    if how == "unknown":
        script.inject(fault)
    for process in (WRITER, BESIDE):
        getattr(script, how)(process)
    if how != "unknown":
        script.inject(fault)
    script.heal(fault)
    return script


def reads(script: Script, *views: tuple[str, tuple[int, ...]]) -> Script:
    for session, shown in views:
        script.read(READER, *shown, session=session)
    return script


@pytest.mark.parametrize("how", ["ok", "unknown"])
def test_one_that_is_in_one_session_only_is_torn(how: str) -> None:
    script = reads(ended(how), ("s", (0,)), ("t", ()))
    found = script.only()
    assert (found.name, found.count, found.first.message) == ("torn-turn", 1, "m1")
    assert 'over 2 sessions, and is there in "s"' in found.sentence
    assert 'none of its messages in "t": message m1' in found.sentence
    assert script.verdict().status == "violated"


@pytest.mark.parametrize("how", ["ok", "unknown"])
def test_one_that_is_in_both_or_in_none_is_not(how: str) -> None:
    assert reads(ended(how), ("s", (0,)), ("t", (1,))).names() == []
    assert "torn-turn" not in reads(ended(how), ("s", ()), ("t", ())).names()


def test_one_in_doubt_may_take_effect_between_two_reads() -> None:
    assert reads(ended("unknown"), ("t", ()), ("s", (0,))).names() == []
    assert reads(ended("unknown"), ("t", ()), ("s", (0,)), ("t", (1,))).names() == []
    torn = reads(ended("unknown"), ("t", ()), ("s", (0,)), ("t", ()))
    assert torn.counts() == {"torn-turn": 1}


def test_what_is_known_from_before_the_fault_proves_nothing() -> None:
    script = Script(fault="kill-engine", policy="none")
    begin(script)
    script.read(READER, 0, session="s")
    for process in (WRITER, BESIDE):
        script.ok(process)
    script.crash()
    script.read(READER, session="t")
    assert "torn-turn" not in script.names(), "the engine may have lost all of it"
    script.read(READER, 0, session="s")
    assert "torn-turn" in script.names()


def test_a_part_that_was_retracted_or_forgotten_is_not_missed() -> None:
    script = reads(ended("unknown"), ("s", (0,)), ("t", (1,)))
    script.retract(3, 1, session="t")
    assert reads(script, ("t", ()), ("s", (0,))).names() == []
    script = reads(ended("unknown"), ("s", (0,)), ("t", (1,)))
    script.forget(3, "t")
    assert reads(script, ("t", ()), ("s", (0,))).names() == []


def test_a_fault_that_takes_single_keys_tears_nothing() -> None:
    assert "torn-turn" not in reads(ended("ok", "evict"), ("s", (0,)), ("t", ())).names()


def test_one_that_failed_is_dirty_where_it_is_read() -> None:
    script = reads(ended("fail"), ("s", (0,)), ("t", ()))
    assert script.counts() == {"dirty-read": 1}


def test_its_parts_are_one_client_s_and_the_steps_say_so() -> None:
    script = reads(ended("ok"), ("s", (0,)), ("t", ()))
    evidence = collect(script.history())
    assert list(evidence.turn_process) == [WRITER, WRITER]
    assert evidence.parts == {0: [0, 1], 1: [0, 1]}
    (anomaly,) = script.verdict().anomalies
    steps = steps_of(script.history(), anomaly.first)
    assert {step.process for step in steps} <= {WRITER, READER, -1}
    assert any("part of a turn over several sessions" in step.text for step in steps)


def test_a_single_message_in_each_of_two_sessions_can_be_torn() -> None:
    assert "torn-turn" in reads(ended("ok"), ("s", (0,)), ("t", (1,))).verdict().covered


def test_a_turn_that_begins_with_no_message_is_no_history() -> None:
    script = Script()
    begin(script, spans=7)
    with pytest.raises(HistoryError, match="message 7"):
        collect(script.history())
