"""What the runner asks of a worker, and what of it the history says."""

from __future__ import annotations

from pathlib import Path

from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import HistoryHeader, ReadAsked
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.workloads import AppendTurn, Body, ReadBack
from recollect.verify.target import pipe

WRITER, READER = 0, 1
NEW = ReadBack("s", after_seen=True)


def test_a_cursor_is_the_store_s_own_on_the_wire_and_a_message_in_the_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path.open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        for text in ("a", "b"):
            turn = AppendTurn("s", (Body(text),))
            transcript.begin(WRITER, turn)
            transcript.end(WRITER, turn, pipe.Acked())
        assert transcript.begin(READER, NEW) == pipe.Read("s"), "nothing was seen yet"
        transcript.end(READER, NEW, pipe.Elements([0, 1], sequence=700))
        assert transcript.begin(READER, NEW) == pipe.Read("s", after=700)
        transcript.end(READER, NEW, pipe.Elements([]))

        history.fault_injected("power-loss")
        history.engine_stopped()
        history.engine_started()
        history.fault_healed("power-loss")
        assert transcript.begin(READER, NEW) == pipe.Read("s"), "what it stood on may be lost"
        transcript.end(READER, NEW, pipe.Elements([0], sequence=350))
        assert transcript.begin(READER, NEW) == pipe.Read("s", after=350)
        transcript.unknown(READER, "the client was killed")

    asked = [event.value for event in History(path) if (event.kind, event.operation) == ("invoke", "read")]
    assert asked == [None, ReadAsked(after=1), None, ReadAsked(after=0)]
