"""What the runner asks of a worker, and what of it the history says."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import (
    HistoryHeader,
    ReadAsked,
    RetractAsked,
    RowsCounted,
    WriteAsked,
    part_process,
)
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.workloads import AppendTurn, Body, ForkOff, ReadBack, ReplaceAll, TakeBack
from recollect.verify.target import pipe
from recollect.verify.target.about import about
from recollect.verify.target.marked_text import Recognised

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


POSITIONED = ReadBack("s", positioned=True)


def said(transcript: Transcript, *texts: str) -> None:
    for text in texts:
        turn = AppendTurn("s", (Body(text),))
        transcript.begin(WRITER, turn)
        transcript.end(WRITER, turn, pipe.Acked())


def test_what_is_no_plain_text_is_named_in_the_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    plain = AppendTurn("s", (Body("hello"),))
    mixed = AppendTurn("s", (Body("hello"), Body("", kind="tool"), Body("again", marked=False, kind="again")))
    with HistoryWriter(path.open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        for turn in (plain, mixed):
            transcript.begin(WRITER, turn)
            transcript.end(WRITER, turn, pipe.Acked())
    asked = [event.value for event in History(path) if isinstance(event.value, WriteAsked)]
    assert [write.contents for write in asked] == [(), ("", "a tool's result", 'the text "again"')]


@pytest.mark.parametrize(("marked", "asked"), [(True, ["s"]), (False, [])])
def test_the_engine_is_not_asked_for_what_carries_no_number(
    marked: bool, asked: list[str], tmp_path: Path
) -> None:
    with HistoryWriter((tmp_path / "h").open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        turn = AppendTurn("s", (Body("yes", marked=marked),))
        transcript.begin(WRITER, turn)
        transcript.end(WRITER, turn, pipe.Acked())
        transcript.begin(READER, ReadBack("s"))
        transcript.end(READER, ReadBack("s"), pipe.Elements([]))
        assert transcript.short_sessions() == asked


def test_what_was_forgotten_is_not_counted_among_what_the_engine_still_has(tmp_path: Path) -> None:
    """A store may only mark it as deleted."""
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path.open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        said(transcript, "a", "b")
        late = AppendTurn("s", (Body("under way meanwhile"),))
        transcript.begin(READER, late)
        transcript.begin(WRITER, pipe.Forget("s"))
        transcript.end(WRITER, pipe.Forget("s"), pipe.Acked())
        transcript.end(READER, late, pipe.Acked())
        assert transcript.short_sessions() == []
        said(transcript, "c")
        transcript.begin(READER, ReadBack("s"))
        transcript.end(READER, ReadBack("s"), pipe.Elements([]))
        assert transcript.short_sessions() == ["s"]
        transcript.counted(READER, "s", {0, 1, 2, 3})

    *_, counted = History(path)
    assert counted.value == RowsCounted(1)


def test_changes_are_places_on_the_wire_and_messages_in_the_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path.open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        said(transcript, "a", "b", "c")
        assert transcript.begin(READER, POSITIONED) == pipe.Read("s", positioned=True)
        # The store calls one damaged, which is in the list and is no message.
        damaged = Recognised(None, False, damaged=True)
        transcript.end(READER, POSITIONED, pipe.Elements([0, -1, 1, 2], [damaged], sequence=7, position=9))
        popped = TakeBack("s", (1.0, 0.5), compare=True)
        request = transcript.begin(READER, popped)
        assert isinstance(request, pipe.Retract)
        assert (request.places, request.expect) == ([2, 3], 9)
        transcript.end(READER, popped, pipe.Acked())
        replaced = ReplaceAll("s", (Body("d"), Body("e")))
        request = transcript.begin(READER, replaced)
        assert isinstance(request, pipe.Replace)
        assert (request.expect, [one.number for one in request.said]) == (9, [3, 4])
        transcript.end(READER, replaced, pipe.Acked())
    asked = {event.operation: event.value for event in History(path) if event.kind == "invoke"}
    retraction, write = asked["retract"], asked["replace"]
    assert isinstance(retraction, RetractAsked)
    assert (retraction.messages, retraction.expect) == ((1, 2), 9)
    assert isinstance(write, WriteAsked)
    assert (write.first, write.dropped, write.expect, write.base) == (3, (0, 3), 9, 7)


@pytest.mark.parametrize(("fault", "expect"), [("none", None), ("concurrent-writers", None), ("cut", 3)])
def test_where_sequences_may_be_lost_a_retraction_is_compared(
    tmp_path: Path, fault: str, expect: int | None
) -> None:
    file = (tmp_path / "history.jsonl").open("wb")
    with HistoryWriter(file, HistoryHeader(recollect="0", fault=fault)) as history:
        transcript = Transcript(history, retries=False)
        said(transcript, "a")
        transcript.begin(READER, POSITIONED)
        transcript.end(READER, POSITIONED, pipe.Elements([0], sequence=1, position=3))
        request = transcript.begin(READER, TakeBack("s", (0.0,)))
        assert isinstance(request, pipe.Retract)
        assert request.expect == expect


def test_what_was_seen_before_a_fault_is_not_changed(tmp_path: Path) -> None:
    with HistoryWriter((tmp_path / "history.jsonl").open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        said(transcript, "a")
        for change in (TakeBack("s", (0.0,)), ReplaceAll("s", (Body("b"),))):
            transcript.begin(READER, POSITIONED)
            transcript.end(READER, POSITIONED, pipe.Elements([0], sequence=1, position=1))
            history.fault_injected("power-loss")
            assert transcript.begin(READER, change) == pipe.Read("s")
            transcript.end(READER, change, pipe.Elements([0], sequence=1))
            assert transcript.begin(READER, change) == pipe.Read("s"), "its position is not known"
            transcript.end(READER, change, pipe.Elements([], sequence=None))


@pytest.mark.parametrize(
    "change", [TakeBack("s", (0.0,)), ReplaceAll("s", (Body("b"),)), ForkOff("s", "copy")]
)
def test_what_was_asked_before_a_fault_and_answered_just_in_time_is_not_changed(
    tmp_path: Path, change: TakeBack | ReplaceAll | ForkOff
) -> None:
    """The fault is recorded the moment it is done to the engine; an answer may still be on its way."""
    with HistoryWriter((tmp_path / "history.jsonl").open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        said(transcript, "a")
        transcript.begin(READER, POSITIONED)
        history.fault_injected("power-loss")
        transcript.end(READER, POSITIONED, pipe.Elements([0], sequence=1, position=1))
        assert transcript.begin(READER, change) == pipe.Read("s")
        transcript.end(READER, change, pipe.Elements([0], sequence=1))
        assert transcript.begin(READER, NEW) == pipe.Read("s", after=1), "asked again since"
        transcript.end(READER, NEW, pipe.Elements([]))


@pytest.mark.parametrize(
    "reply", [pipe.Acked(), pipe.Failed("fail", "no"), pipe.Failed("unknown", "lost"), None]
)
def test_a_turn_over_two_sessions_is_one_request_and_a_write_in_each(
    tmp_path: Path, reply: pipe.Reply | None
) -> None:
    path = tmp_path / "history.jsonl"
    turn = AppendTurn("s", (Body("a"), Body("b")), beside=(AppendTurn("t", (Body("c"),)),))
    with HistoryWriter(path.open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=True)
        request = transcript.begin(WRITER, turn)
        assert isinstance(request, pipe.AppendMessages)
        assert [one.number for one in request.said] == [0, 1]
        assert {session: [one.number for one in said] for session, said in request.beside.items()} == {
            "t": [2]
        }
        if reply is None:
            transcript.unknown(WRITER, "the client was killed")
        else:
            outcome = transcript.end(WRITER, turn, reply)
            again = transcript.retry_of(WRITER)
            assert (again is not None) == (outcome == "unknown")
            if again is not None:
                assert again == (turn, request)
                transcript.end(WRITER, turn, pipe.Acked())
        assert transcript.written == (3 if transcript.succeeded else 0)
        assert transcript.sessions == ["s", "t"]
    events = list(History(path))
    begun = [event for event in events if event.kind == "invoke"]
    assert [(event.process, event.session) for event in begun[:2]] == [
        (WRITER, "s"),
        (part_process(WRITER, 1), "t"),
    ]
    writes = [event.value for event in begun[:2] if isinstance(event.value, WriteAsked)]
    assert [(write.first, write.turn, write.spans) for write in writes] == [
        (0, "turn-0", 0),
        (2, "turn-0", 0),
    ]
    ends = [event.kind for event in events if event.kind != "invoke"]
    assert len(ends) == len(begun)
    assert ends[::2] == ends[1::2], "its parts end alike"


def test_copies_have_numbers_of_their_own_and_reads_of_them_are_translated(tmp_path: Path) -> None:
    """Also copies of copies: the texts still have the numbers of the first originals."""
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path.open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        said(transcript, "a", "b", "c")
        for source, new in (("s", "copy"), ("copy", "second")):
            read = ReadBack(source, positioned=True)
            transcript.begin(READER, read)
            transcript.end(READER, read, pipe.Elements([0, 2], sequence=3, position=4))
            fork = ForkOff(source, new)
            request = transcript.begin(READER, fork)
            assert isinstance(request, pipe.MakeCopy)
            assert (request.session, request.new, request.expect) == (source, new, 4)
            transcript.end(READER, fork, pipe.Acked())
        read = ReadBack("second")
        transcript.begin(READER, read)
        transcript.end(READER, read, pipe.Elements([0, 1, 2]))
        assert transcript.written == 7
        assert transcript.sessions == ["s", "copy", "second"]
    writes = [
        event.value for event in History(path) if event.kind == "invoke" and event.operation == "append"
    ]
    forks = [write for write in writes if isinstance(write, WriteAsked) and write.copied is not None]
    assert [(write.copied, write.first, len(write.checksums)) for write in forks] == [
        ("s", 3, 2),
        ("copy", 5, 2),
    ]
    found = {anomaly.name: anomaly.first.message for anomaly in analyze(History(path)).anomalies}
    assert found["cross-session-leak"] == "m1", "it was never copied"
    assert "duplicate" not in found


def test_what_is_not_known_to_be_current_is_not_forked(tmp_path: Path) -> None:
    with HistoryWriter((tmp_path / "history.jsonl").open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        said(transcript, "a")
        assert transcript.begin(READER, ForkOff("s", "copy")) == pipe.Read("s")


def test_a_first_annotation_replaces_nothing_and_the_next_one_replaces_it(tmp_path: Path) -> None:
    """Metadata is a session of its own, and may be empty before it is changed; messages may not."""
    metadata = about("s")
    read = ReadBack(metadata, positioned=True)
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path.open("wb"), HistoryHeader(recollect="0")) as history:
        transcript = Transcript(history, retries=False)
        for seen, position in (([], 4), ([0], 5)):
            transcript.begin(READER, read)
            transcript.end(READER, read, pipe.Elements(list(seen), position=position))
            annotation = ReplaceAll(metadata, (Body("title"),))
            request = transcript.begin(READER, annotation)
            assert isinstance(request, pipe.Replace)
            assert (request.session, request.expect) == (metadata, position)
            transcript.end(READER, annotation, pipe.Acked())
        transcript.begin(READER, read)
        transcript.end(READER, read, pipe.Elements([], position=6))
    found = [(anomaly.name, anomaly.first.message) for anomaly in analyze(History(path)).anomalies]
    assert found == [("dropped", "m1")]
