"""A run told step by step."""

from pathlib import Path

from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import Element, HistoryHeader, WriteAsked
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


def test_of_a_long_run_what_the_witness_names_and_what_is_next_to_it(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0")) as history:
        ends = []
        for number in range(40):
            history.invoke_write(0, "s", "append", WriteAsked(number, (number,)))
            ends.append(history.ok(0))
    steps = steps_of(History(path), WitnessEvents(session="s", events=(ends[5], ends[30])), 6)
    assert [step.text for step in steps] == [
        "… 4 more steps …",
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
