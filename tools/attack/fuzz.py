"""Mutated bytes for everything that reads what others wrote: records, histories, results, addresses, replies.

A parser gives a value or its own error; anything else, and anything that takes seconds, is found.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from tools.attack.assault import Assault

from recollect import CannotOpen, Refused
from recollect.message import Message, decode, encode
from recollect.opening import open_store
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryError, HistoryWriter
from recollect.verify.judging.op import HistoryHeader, WriteAsked
from recollect.verify.running.scenario import Scenario

TIMES = 10_000
SLOW_S = 2.0

Parser = tuple[bytes, Callable[[bytes], object], tuple[type[Exception], ...]]


def attack(assault: Assault) -> None:
    with tempfile.TemporaryDirectory(prefix="recollect-attack-") as folder:
        for name, (seed, parse, allowed) in parsers(Path(folder)).items():
            for _ in range(assault.limit or TIMES):
                if not assault.goes_on():
                    return
                raw = mutated(assault, seed)
                started = time.monotonic()
                try:
                    parse(raw)
                except allowed:
                    pass
                except Exception as error:
                    assault.found(f"{name}: {type(error).__name__}: {error} for {raw[:80]!r}")
                slow_s = time.monotonic() - started
                assault.expect(slow_s < SLOW_S, f"{name}: {slow_s:.1f} s for {raw[:80]!r}")
                assault.count(name)


def parsers(folder: Path) -> dict[str, Parser]:
    record = encode(Message("user", [{"type": "text", "text": "hello ✓"}], metadata={"n": [1, 2.5, None]}))
    return {
        "records": (record, decode, ()),
        "histories": (_history(), lambda raw: _judged(folder, raw), (HistoryError,)),
        "scenarios": (
            msgspec.json.encode(
                {
                    "target": "redis",
                    "engine": "redis",
                    "policy": "rdb",
                    "fault": "restart",
                    "workload": "turns",
                }
            ),
            lambda raw: msgspec.json.decode(raw, type=Scenario),
            (msgspec.MsgspecError, UnicodeDecodeError),
        ),
        "addresses": (
            b"redis://user:word@localhost:6379/0?prefix=app",
            lambda raw: open_store(raw.decode("utf-8", "replace")),
            (Refused, CannotOpen),
        ),
    }


def mutated(assault: Assault, seed: bytes) -> bytes:
    """One to four changes: bits, bytes, cuts, repetitions, big numbers."""
    rng, raw = assault.rng, bytearray(seed)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(raw)) if raw else 0
        match rng.randrange(6):
            case 0 if raw:
                raw[at] ^= 1 << rng.randrange(8)
            case 1:
                raw[at:at] = bytes([rng.randrange(256)]) * rng.choice([1, 3, 70])
            case 2:
                del raw[at : at + rng.choice([1, 5, 50])]
            case 3:
                raw[at:at] = raw[at : at + 40] * rng.choice([1, 20])
            case 4:
                raw[at : at + 1] = rng.choice(
                    [b"9" * 400, b"-1", b"1e999", b"null", b"[" * 2_000, b"\\ud800", b"\x00"]
                )
            case _:
                del raw[at:]
    return bytes(raw)


def _history() -> bytes:
    file = io.BytesIO()
    writer = HistoryWriter(file, HistoryHeader(recollect="0.1.0", engine="redis", policy="rdb", ok_ops_min=0))
    for number in range(5):
        writer.invoke_write(1, "s", "append", WriteAsked(number, (number,)))
        writer.ok(1)
    writer.invoke_read(2, "s")
    writer.ok_read(2, [])
    writer.flush()
    return file.getvalue()


def _judged(folder: Path, raw: bytes) -> object:
    path = folder / "history.jsonl"
    path.write_bytes(raw)
    return analyze(History(path))
