"""A run told step by step."""

from pathlib import Path

import pytest

from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import Element, HistoryHeader, ReadAsked, RowsCounted, WriteAsked
from recollect.verify.judging.steps import EVERYONE, StepTaken, steps_of
from recollect.verify.judging.verdict import WitnessEvents


def test_reads_saves_and_faults_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0")) as history:
        history.invoke_read(0, "s")
        history.invoke_read(1, "s")
        loaded = history.ok_read(0, [])
        stale = history.ok_read(1, [])
        history.invoke_write(0, "s", "save", WriteAsked(0, (7,), base=loaded))
        acknowledged = history.ok(0)
        history.invoke_write(1, "s", "save", WriteAsked(1, (8,), base=stale))
        history.ok(1)
        history.invoke_write(2, "elsewhere", "append", WriteAsked(2, (9,)))
        history.ok(2)
        history.fault_injected("kill-engine")
        history.engine_stopped()
        history.engine_started()
        history.invoke_read(0, "s")
        read = history.ok_read(0, [Element(1, 8), Element(None, text="who?")])
        history.invoke_write(1, "s", "append", WriteAsked(3, (10, 11, 12)))
        history.fail(1, "no  route\nto host")
        history.invoke_read(1, "s")
    witness = WitnessEvents(session="s", acknowledged=acknowledged, events=(acknowledged, read))
    assert steps_of(History(path), witness) == (
        StepTaken(1, "starts reading"),
        StepTaken(0, "reads: nothing"),
        StepTaken(1, "reads: nothing"),
        StepTaken(0, "saves m0", told=True),
        StepTaken(1, "saves m1"),
        StepTaken(EVERYONE, "kill-engine"),
        StepTaken(EVERYONE, "the engine is down"),
        StepTaken(EVERYONE, "the engine is up again"),
        StepTaken(0, "reads: m1, 'who?'", told=True),
        StepTaken(1, "appends m3…m5: error, no route to host"),
        StepTaken(1, "reads: no answer"),
    )


def test_a_witness_of_two_sessions_says_where_each_step_was(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0")) as history:
        history.invoke_write(0, "s", "append", WriteAsked(0, (7,)))
        acknowledged = history.ok(0)
        history.engine_refused("no space left")
        history.invoke_read(1, "elsewhere")
        read = history.ok_read(1, [Element(0, 7)])
    witness = WitnessEvents(session="s", acknowledged=acknowledged, events=(acknowledged, read))
    assert [step.text for step in steps_of(History(path), witness)] == [
        'appends m0 in "s"',
        "the engine refuses to start: no space left",
        'reads: m0 in "elsewhere"',
    ]


def test_every_kind_of_operation_in_words(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0")) as history:
        history.invoke_write(0, "s", "append", WriteAsked(0, (7,), expect=0))
        history.unknown(0, "timed out")
        history.invoke_read(0, "s", ReadAsked(last=2))
        history.ok_read(0, [Element(0, 8), Element(None, damaged=True), Element(None, text="a" * 70)])
        history.invoke_read(0, "s", ReadAsked(after=0))
        history.ok_read(0, [Element(None, text=text) for text in "abc"])
        history.invoke_write(0, "s", "save", WriteAsked(1, tuple(range(1, 10)), base=1))
        history.ok(0)
        history.invoke(0, "s", "forget")
        history.ok(0)
        history.invoke_read(0, "s")
        history.ok_read(0, [Element(number, number) for number in (1, 3, 5, 7, 9)])
        history.invoke(0, "s", "count")
        history.ok(0, RowsCounted(5))
        history.invoke(0, "s", "count")
        ended = history.ok(0, RowsCounted(0))
    steps = steps_of(History(path), WitnessEvents(session="s", events=(ended,)))
    assert [step.text for step in steps] == [
        "appends m0, expecting 0: no answer",
        "reads the last 2: m0 changed, one that the store calls damaged, 1 more that nobody wrote that way",
        "reads after m0: 'a', 'b', 1 more that nobody wrote that way",
        "saves its list with m1…m9",
        "forgets the session",
        "reads: m1, m3, m5, … m9 (5)",
        "the engine has 5 messages",
        "the engine has no message in plain text",
    ]
    assert steps[-1].process == EVERYONE


def test_of_a_long_run_what_the_witness_names_and_what_is_next_to_it(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0")) as history:
        ends = []
        for number in range(40):
            history.invoke_write(0, "s", "append", WriteAsked(number, (number,)))
            ends.append(history.ok(0))
    steps = steps_of(History(path), WitnessEvents(session="s", events=(ends[5], ends[30])), 6)
    assert [step.text for step in steps] == [
        "… 4 earlier steps …",
        "appends m4",
        "appends m5",
        "appends m6",
        "… 22 more steps …",
        "appends m29",
        "appends m30",
        "appends m31",
        "… 8 more steps …",
    ]
    assert [step.text for step in steps if step.told] == ["appends m5", "appends m30"]


def test_of_a_long_run_the_fault_before_is_shown_and_not_only_one_that_came_later(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    ends = []
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0")) as history:
        for number in range(40):
            if number in (5, 12, 31):
                history.fault_injected("clock-forward")
            history.invoke_write(0, "s", "append", WriteAsked(number, (number,)))
            ends.append(history.ok(0))
    steps = steps_of(History(path), WitnessEvents(session="s", events=(ends[30],)), 4)
    assert [step.text for step in steps] == [
        "… 13 earlier steps …",
        "clock-forward",
        "… 17 more steps …",
        "appends m29",
        "appends m30",
        "clock-forward",
        "… 9 more steps …",
    ]


@pytest.mark.parametrize(("abilities", "text"), [((), "reads: m0"), (("last",), "reads the last 2: m0")])
def test_a_store_without_a_limit_reads_everything(
    tmp_path: Path, abilities: tuple[str, ...], text: str
) -> None:
    path = tmp_path / "history.jsonl"
    header = HistoryHeader(recollect="0", abilities=abilities)
    with path.open("wb") as file, HistoryWriter(file, header) as history:
        history.invoke_write(0, "s", "append", WriteAsked(0, (7,)))
        history.ok(0)
        history.invoke_read(0, "s", ReadAsked(last=2))
        ended = history.ok_read(0, [Element(0, 7)])
    steps = steps_of(History(path), WitnessEvents(session="s", events=(ended,)))
    assert [step.text for step in steps] == ["appends m0", text]


def test_a_long_read_shows_what_is_looked_for(tmp_path: Path) -> None:
    """Where the message stands among the others, also if it is there twice; and who asked again and again asks once."""
    path = tmp_path / "history.jsonl"
    shown = [Element(number, number) for number in (*range(0, 40, 2), 33, 36, 33, *range(40, 60, 2))]
    done: list[int] = []
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0")) as history:
        for number in range(60):
            history.invoke_write(0, "s", "append", WriteAsked(number, (number,)))
            done.append(history.ok(0))
        for _ in range(3):
            history.invoke_read(1, "s")
            history.ok_read(1, [])
        history.invoke_read(1, "s")
        read = history.ok_read(1, shown)
    witness = WitnessEvents(session="s", acknowledged=done[33], events=(done[33], read))
    told = [step.text for step in steps_of(History(path), witness)]
    assert told[-2:] == ["reads: nothing (3 times)", "reads: m0, … m33, … m33, … m58 (33)"]


def test_the_fault_is_among_the_steps(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0")) as history:
        struck = history.fault_injected("restart")
        history.invoke_write(0, "s", "append", WriteAsked(0, (7,), contents=('the text "yes"',)))
        acknowledged = history.ok(0)
        for number in range(30):
            history.invoke_read(number, "s")
            read = history.ok_read(number, [])
    witness = WitnessEvents(
        session="s", acknowledged=acknowledged, fault_event=struck, events=(acknowledged, read)
    )
    told = [step.text for step in steps_of(History(path), witness)]
    assert told[:2] == ["restart", 'appends m0 (the text "yes")']
