"""A recorded run that was saved, and one whose files something happened to."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.verify.disk import recording
from recollect.verify.disk.exploring import Judgement, load_judgements, save_judgements
from recollect.verify.disk.records import _RECORD, HEADER_BYTES, DamagedRecording
from tests.disk.recorded_program import recorded


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    recorder, records = recorded(tmp_path / "data", "write_file('f', b'abc'); os.mkdir('d')")
    with recorder:
        recording.save(recorder, tmp_path / "saved")
    assert list(recording.Recording.load(tmp_path / "saved").records) == records
    return tmp_path / "saved"


TOTAL, OP, LENGTH_1 = 8, 32, 36
"""Where the fields of a record are."""


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (TOTAL, bytes(4)),  # would be read again and again
        (TOTAL, b"\xff" * 4),
        (TOTAL, b"\x49\0\0\0"),
        (OP, b"\xff\xff"),
        (OP, bytes(2)),
        (LENGTH_1, b"\xff\xff"),
        (_RECORD.size - 8, b"\xff" * 8),
        (_RECORD.size - 8, b"\0\0\0\0\1\0\0\0"),
    ],
)
def test_a_record_that_does_not_fit_is_told(saved: Path, at: int, value: bytes) -> None:
    log = bytearray((saved / "log").read_bytes())
    log[HEADER_BYTES + at : HEADER_BYTES + at + len(value)] = value
    (saved / "log").write_bytes(log)
    with pytest.raises(DamagedRecording, match=f"record at {HEADER_BYTES}"):
        recording.Recording.load(saved)


@pytest.mark.parametrize("kept", [0, 100, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 20, -1])
def test_a_log_that_was_cut_is_told(saved: Path, kept: int) -> None:
    (saved / "log").write_bytes((saved / "log").read_bytes()[:kept])
    with pytest.raises(DamagedRecording):
        recording.Recording.load(saved)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"f": "x"}', b'{"a":' * 100_000])
def test_inode_numbers_that_are_none_are_told(saved: Path, content: bytes) -> None:
    (saved / "base.json").write_bytes(content)
    with pytest.raises(DamagedRecording, match=r"base\.json"):
        recording.Recording.load(saved)


def test_judgements_are_read_back_or_told(tmp_path: Path) -> None:
    file = tmp_path / "findings.jsonl"
    judged = {(7, 3): Judgement(), (2**127, 0): Judgement("lost-tail", "gone", documented=True)}
    save_judgements(file, judged)
    assert load_judgements(file) == judged
    for line in (
        b"{}",
        b"nonsense",
        b'{"digest": "xyz", "marks": 1}',
        b'{"digest": "1", "marks": 1, "more": 2}',
    ):
        file.write_bytes(line + b"\n")
        with pytest.raises(DamagedRecording, match=r"findings\.jsonl"):
            load_judgements(file)
