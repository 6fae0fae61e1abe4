"""Bits that flip at rest: where they flip, and what they prove about a store and its engine."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from recollect.verify.judging.op import Element
from recollect.verify.running.faults import FAULTS
from recollect.verify.running.faults.bit_rot import METADATA, RECORDS, BitPlace, flip, places
from recollect.verify.running.scenario import Scenario
from recollect.verify.target.marked_text import mark, marks_in
from tests.checkers.history_script import Script
from tests.faults.cells import our_cell, run_cell

HEADER = b"header: 17 \x01\x02 length 99 "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = [mark(number, f"the blue one, {number}").encode() for number in range(20)]
    (tmp_path / "memory.db").write_bytes(HEADER + b'"\x03'.join(texts) + b'"' + HEADER)
    (tmp_path / "empty").touch()
    (tmp_path / "pg_wal").mkdir()
    (tmp_path / "pg_wal" / "0001").write_bytes(texts[0])
    return tmp_path


def test_a_bit_of_a_record_changes_one_letter_of_its_text(folder: Path) -> None:
    before = (folder / "memory.db").read_bytes()
    chosen = places(folder, RECORDS, random.Random(1))
    assert len({place.offset for place in chosen}) == 8
    assert {place.file.name for place in chosen} == {"memory.db"}
    for place in chosen:
        flip(place)
    after = (folder / "memory.db").read_bytes()
    assert [raw[begin:start] for raw in (before,) for begin, start, _ in marks_in(raw)] == [
        raw[begin:start] for raw in (after,) for begin, start, _ in marks_in(raw)
    ]
    changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert changed == sorted(place.offset for place in chosen)
    assert all(chr(before[number]).isalpha() for number in changed)


def test_a_bit_of_metadata_is_outside_every_text(folder: Path) -> None:
    raw = (folder / "memory.db").read_bytes()
    chosen = places(folder, METADATA, random.Random(1))
    assert chosen
    for place in chosen:
        assert not any(begin <= place.offset < end for begin, _, end in marks_in(raw))


def test_a_file_without_texts_gets_bits_anywhere(tmp_path: Path) -> None:
    (tmp_path / "dump.rdb").write_bytes(b"REDIS0011" + b"\x81" * 500)
    assert {place.file.name for place in places(tmp_path, RECORDS, random.Random(1))} == {"dump.rdb"}
    assert places(tmp_path / "nothing", RECORDS, random.Random(1)) == []


def test_flipping_twice_changes_nothing(folder: Path) -> None:
    file = folder / "memory.db"
    before = file.read_bytes()
    for _ in range(2):
        flip(BitPlace(file, 30, 3))
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("policy", "damaged", "status", "covered"),
    [
        ("aof-always", False, "exposed", True),
        ("aof-always", True, "documented-loss", True),
        ("rdb", False, "violated", False),
        ("rdb", True, "documented-loss", True),
    ],
)
def test_wrong_content_is_judged_by_the_engines_checksums(
    policy: str, damaged: bool, status: str, covered: bool
) -> None:
    script = Script(policy=policy, fault="bit-rot")
    script.append(1)
    script.read(2, 0)
    script.crash("bit-rot")
    script.read(2, Element(None if damaged else 0, 99, damaged=damaged))
    verdict = script.verdict()
    assert verdict.status == status, verdict.reason
    assert verdict.anomalies[0].covered is covered


def test_wrong_content_before_any_bit_flipped_is_the_stores_own() -> None:
    script = Script(policy="aof-always", fault="bit-rot")
    script.append(1)
    script.read(2, Element(0, 99))
    script.crash("bit-rot")
    script.read(2, 0)
    assert script.verdict().status == "violated"


@pytest.mark.parametrize(
    ("engine", "policy", "more", "says"),
    [
        ("redis", "none", {}, "nothing at rest"),
        ("redis", "rdb", {"provider": "docker:tmpfs"}, "in the container's memory"),
    ],
)
def test_where_no_bit_can_flip(engine: str, policy: str, more: dict[str, Any], says: str) -> None:
    scenario = Scenario(target=engine, engine=engine, policy=policy, fault="bit-rot", **more)
    assert says in (FAULTS["bit-rot"].obstacle(scenario) or "")


@pytest.mark.parametrize("variant", [RECORDS, METADATA])
def test_our_own_store_notices(variant: str, tmp_path: Path) -> None:
    verdict = run_cell(our_cell("sqlite", "bit-rot", variant=variant), tmp_path)
    assert verdict.status == "documented-loss", verdict.reason
    assert not any(anomaly.silent for anomaly in verdict.anomalies)
