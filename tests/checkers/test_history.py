"""The file: what is written, what is read back, what is refused, and how small reads are."""

from __future__ import annotations

import io
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryError, HistoryWriter
from recollect.verify.judging.op import (
    Context,
    Element,
    FaultDetail,
    HistoryHeader,
    OddElement,
    ReadAsked,
    Seen,
    WriteAsked,
)
from recollect.verify.judging.read_deltas import OddTable, ViewEncoder, chain_of, count_of, from_runs, to_runs

from .history_script import save_history
from .history_simulator import valid_history


def saved(tmp_path: Path, seed: int = 3) -> Path:
    path = tmp_path / "history.jsonl"
    save_history(valid_history(seed), path)
    return path


def test_a_saved_history_reads_back_as_it_was(tmp_path: Path) -> None:
    recorded = valid_history(5)
    path = saved(tmp_path, 5)
    history = History(path)
    assert list(history) == list(recorded.events)
    assert history.header == recorded.header
    assert not history.truncated
    assert analyze(history) == analyze(recorded)


def test_a_large_history_is_read_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0.1.0")) as writer:
        for _ in range(3_000):
            writer.invoke_write(1, "s", "append", WriteAsked(writer.messages, (1,)))
            writer.ok(1)
    blocks = list(History(path).blocks())
    assert len(blocks) > 2
    assert [event.index for block in blocks for event in block] == list(range(6_000))


def test_a_cut_off_last_line_is_dropped_and_reported(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    lines = whole.count(b"\n")
    path.write_bytes(whole[:-7])
    history = History(path)
    assert len(list(history)) == lines - 2
    assert history.truncated
    verdict = analyze(history)
    assert verdict.truncated
    assert verdict.status == "unknown"
    assert any("cut off" in gap for gap in verdict.not_covered)


def test_a_malformed_line_is_named_by_number(tmp_path: Path) -> None:
    path = saved(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[7] = b'{"index": 6, "kind": "maybe"}'
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(HistoryError, match="line 8: not an event") as caught:
        list(History(path))
    assert caught.value.line == 8


def test_a_missing_line_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    lines = path.read_bytes().split(b"\n")
    del lines[4]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(HistoryError, match="line 5: event index 4, expected 3"):
        list(History(path))


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (b"", "no whole first line"),
        (b'{"history": 1', "no whole first line"),
        (b"[]\n", "not a history's header"),
        (b"\xff\n", "not a history's header"),
        (b'{"history": 9, "recollect": "9.0"}\n', "format 9, this release reads format 1"),
    ],
)
def test_what_is_not_a_history_is_refused(tmp_path: Path, first: bytes, message: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(first)
    with pytest.raises(HistoryError, match=message):
        History(path)


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (['"ok","process":1'], 2, "completes without an open invocation"),
        (
            [
                '"invoke","process":1,"session":"s","operation":"read"',
                '"invoke","process":1,"session":"s","operation":"read"',
            ],
            3,
            "while an operation of it is open",
        ),
        (['"invoke","process":1,"session":"s","operation":"dance"'], 2, "unknown operation 'dance'"),
        (['"invoke","process":1,"session":"s","operation":"append"'], 2, "carries a write"),
        (
            [
                '"invoke","process":1,"session":"s","operation":"append",'
                '"value":{"is":"write","first":4,"checksums":[1]}'
            ],
            2,
            "message 4 was never numbered",
        ),
        (
            [
                '"invoke","process":1,"session":"s","operation":"append",'
                '"value":{"is":"write","first":0,"checksums":[1,2]}',
                '"ok","process":1',
                '"invoke","process":1,"session":"s","operation":"append",'
                '"value":{"is":"write","first":0,"checksums":[1]}',
            ],
            4,
            "another session or length",
        ),
        (
            [
                '"invoke","process":1,"session":"s","operation":"read"',
                '"ok","process":1,"value":{"is":"seen","keep":3}',
            ],
            3,
            r"keeps 0\.\.3 of a view of 0",
        ),
        (
            [
                '"invoke","process":1,"session":"s","operation":"read"',
                '"ok","process":1,"value":{"is":"rows","rows":3}',
            ],
            3,
            "a read returns what it saw, not Rows",
        ),
        (
            ['"invoke","process":1,"session":"s","operation":"count"', '"ok","process":1'],
            3,
            "a count returns rows",
        ),
        (
            ['"invoke","process":1,"session":"s","operation":"search"', '"ok","process":1'],
            3,
            "a search returns what it found",
        ),
        (
            ['"invoke","process":1,"session":"s","operation":"context"', '"ok","process":1'],
            3,
            "a context read returns its statements",
        ),
    ],
)
def test_an_impossible_event_is_named_by_line(
    tmp_path: Path, lines: list[str], line: int, message: str
) -> None:
    path = tmp_path / "history.jsonl"
    body = "".join(f'{{"index":{index},"time_s":0.1,"kind":{text}}}\n' for index, text in enumerate(lines))
    path.write_text('{"history": 1, "recollect": "0.1.0"}\n' + body)
    with pytest.raises(HistoryError, match=message) as caught:
        analyze(History(path))
    assert caught.value.line == line


def test_a_number_beyond_all_appends_is_a_phantom(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(
        '{"history": 1, "recollect": "0.1.0"}\n'
        '{"index":0,"time_s":0.1,"kind":"invoke","process":1,"session":"s","operation":"read"}\n'
        '{"index":1,"time_s":0.1,"kind":"ok","process":1,"value":{"is":"seen","tail":[5,2]}}\n'
    )
    assert [anomaly.name for anomaly in analyze(History(path)).anomalies] == ["phantom"]


def test_the_writer_refuses_what_cannot_be() -> None:
    writer = HistoryWriter(io.BytesIO(), HistoryHeader(recollect="0.1.0"))
    with pytest.raises(ValueError, match="without an open invocation"):
        writer.ok(1)
    writer.invoke_read(1, "s")
    with pytest.raises(ValueError, match="still has 'read' open"):
        writer.invoke_read(1, "s")
    with pytest.raises(ValueError, match="the next free number is 0"):
        writer.invoke_write(2, "s", "append", WriteAsked(3, (1,)))
    assert writer.messages == 0


def test_the_writer_stamps_both_clocks() -> None:
    now = {"monotonic": 100.0, "wall": 5_000.0}
    file = io.BytesIO()
    writer = HistoryWriter(
        file, HistoryHeader(recollect="0.1.0"), clock=lambda: now["monotonic"], wall=lambda: now["wall"]
    )
    now["monotonic"] += 1.5
    now["wall"] += 1.5
    writer.fault_injected("clock-forward", FaultDetail(offset_s=60.0))
    now["wall"] += 60.0
    writer.fault_healed("clock-forward")
    lines = file.getvalue().splitlines()
    assert msgspec.json.decode(lines[0])["started_s"] == 5_000.0
    assert msgspec.json.decode(lines[1]) == {
        "index": 0,
        "kind": "fault-injected",
        "time_s": 1.5,
        "operation": "clock-forward",
        "value": {"is": "disturbance", "offset_s": 60.0},
    }
    assert msgspec.json.decode(lines[2])["drift_s"] == 60.0


def test_a_field_that_only_another_release_has_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, HistoryHeader(recollect="0.1.0")) as writer:
        writer.engine_refused("bad file format")
    header, event = path.read_bytes().splitlines()
    former = event[:-1] + b',"value":{"is":"disturbance","deadline_s":5.0,"detail":"d"}}'
    path.write_bytes(header + b"\n" + former + b"\n")
    (read,) = History(path)
    assert read.value == FaultDetail(detail="d")


# A read is any mix of known messages (right or wrong checksum), unknown numbers, and items without one.
_ELEMENTS = st.lists(
    st.one_of(
        st.integers(0, 30).map(lambda message: Element(message, message)),
        st.integers(0, 40).map(lambda message: Element(message, 7, text="odd")),
        st.sampled_from([Element(None, text="boo"), Element(None, damaged=True), Element(-3, 1)]),
    ),
    max_size=25,
)


_ASKS = st.sampled_from([None, ReadAsked(last=5), ReadAsked(after=3), ReadAsked(last=40)])


@given(st.lists(st.tuples(_ASKS, _ELEMENTS), max_size=12))
@settings(max_examples=150, deadline=None)
def test_views_are_coded_without_loss(reads: list[tuple[ReadAsked | None, list[Element]]]) -> None:
    encoder, odds = ViewEncoder(), OddTable()
    encoder.appended(0, range(31))
    views: dict[int, list[int]] = {}
    for ask, shown in reads:
        seen = encoder.read("s", ask, shown)
        assert count_of(seen) == len(shown)
        key = chain_of(ask, len(shown))
        view = views[key] = odds.decode(views.get(key, []), seen)
        assert [_plain(element) for element in shown] == [
            number if number >= 0 else odds[number] for number in view
        ]


def _plain(element: Element) -> int | OddElement:
    message = element.message
    if message is not None and 0 <= message < 31 and element.checksum == message and not element.damaged:
        return message
    return OddElement(message, element.checksum, element.damaged, element.text)


@given(st.lists(st.integers(0, 50)))
def test_runs_are_lossless(numbers: list[int]) -> None:
    runs = to_runs(numbers)
    assert from_runs(runs) == numbers
    assert len(runs) <= 2 * len(numbers)


def test_consecutive_numbers_are_one_run() -> None:
    assert to_runs(range(5, 1000)) == (5, 995)
    assert to_runs([]) == ()
    assert from_runs((0, 3, 9, 1)) == [0, 1, 2, 9]


def test_growth_shrinkage_and_sliding_cost_only_what_changed() -> None:
    encoder = ViewEncoder()
    encoder.appended(0, range(100))
    whole = [Element(message, message) for message in range(100)]
    assert encoder.read("s", None, whole[:90]) == Seen(0, 0, (0, 90))
    assert encoder.read("s", None, whole) == Seen(0, 90, (90, 10))
    assert encoder.read("s", None, whole[:40]) == Seen(0, 40)
    assert encoder.read("s", None, whole[:20] + whole[21:40]) == Seen(0, 20, (21, 19))
    assert encoder.read("s", None, whole[5:20] + whole[21:40]) == Seen(5, 34)
    assert encoder.read("s", ReadAsked(last=10), whole[50:60]) == Seen(0, 0, (50, 10))
    assert encoder.read("s", ReadAsked(last=10), whole[53:63]) == Seen(3, 7, (60, 3))
    assert encoder.read("t", None, whole[:3]) == Seen(0, 0, (0, 3))


def test_statements_of_a_context_read_are_coded_against_each_other() -> None:
    encoder = ViewEncoder()
    encoder.appended(0, range(10))
    whole = [Element(message, message) for message in range(10)]
    parts = encoder.context("s", [(ReadAsked(), whole), (ReadAsked(last=3), whole[7:]), (ReadAsked(), whole)])
    assert [part.seen for part in parts] == [Seen(0, 0, (0, 10)), Seen(7, 3), Seen(0, 0, (0, 10))]
    assert encoder.read("s", None, whole) == Seen(0, 10)


def test_a_long_session_read_often_stays_small() -> None:
    file = io.BytesIO()
    writer = HistoryWriter(file, HistoryHeader(recollect="0.1.0"))
    messages, reads = 10_000, 100
    shown: list[Element] = []
    for message in range(messages):
        writer.invoke_write(1, "s", "append", WriteAsked(message, (message,)))
        writer.ok(1)
        shown.append(Element(message, message))
        if message % (messages // reads) == 0:
            writer.invoke_read(2, "s")
            writer.ok_read(2, shown)
    per_operation = len(file.getvalue()) / (messages + reads)
    assert per_operation < 300  # half a million numbers were returned; none is stored twice


def test_random_histories_survive_the_disk(tmp_path: Path) -> None:
    rng = random.Random(4)
    for _ in range(20):
        path = saved(tmp_path, rng.randrange(10_000))
        for event in History(path):
            if isinstance(event.value, Context):
                assert event.value.parts


@pytest.mark.parametrize("line", [0, 1])
def test_nesting_without_end_is_not_a_history(tmp_path: Path, line: int) -> None:
    lines = [b'{"recollect": "0.1.0"}', b'{"index": 0, "kind": "invoke", "time_s": 0}']
    lines[line] = lines[line][:-1] + b', "more": ' + b"[" * 100_000
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(HistoryError):
        analyze(History(path))
