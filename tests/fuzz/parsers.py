"""Every parser of what others write, with files that it accepts, and what it may raise on those that it does not.

A mutation changes such a file in a few places: bits, numbers, lengths, nesting, pieces of another. The parser must
accept it or raise what it declares, within `PARSE_S`; anything else is a bug. The suite tries a sample, `bench/fuzz.py`
ten thousand of each.
"""

from __future__ import annotations

import json
import random
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from recollect import transfer, witness
from recollect.audit import resuming
from recollect.errors import RecollectError
from recollect.message import Message, decode, encode
from recollect.recall import evaluation
from recollect.stores.redis.wire import Replies
from recollect.verify.disk import exploring, recording
from recollect.verify.disk.records import _RECORD, HEADER_BYTES, DamagedRecording, Header, LogFullError, Op
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryError
from recollect.verify.matrix import baseline, results
from recollect.verify.running import scenario
from recollect.verify.wire import pgwire, resp

HISTORIES = Path(__file__).parent.parent / "histories" / "checkers"
PARSE_S = 10.0
"""Of the processor's time; they take milliseconds."""


@dataclass(frozen=True)
class FuzzedParser:
    seeds: Callable[[], list[bytes]]
    parse: Callable[[bytes, Path], object]
    """Of the bytes, with a folder for those that want a file."""
    allowed: tuple[type[BaseException], ...]


class Played:
    """A socket whose other end has said all it will say."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def recv(self, size: int) -> bytes:
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def sendall(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


def _filed(load: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def parse(data: bytes, folder: Path) -> object:
        file = folder / "file"
        file.write_bytes(data)
        return load(file)

    return parse


def _history(data: bytes, folder: Path) -> object:
    file = folder / "history.jsonl"
    file.write_bytes(data)
    return sum(1 for _ in History(file))


def _judged(data: bytes, folder: Path) -> object:
    file = folder / "history.jsonl"
    file.write_bytes(data)
    return analyze(History(file))


def _replies(data: bytes, _: Path) -> object:
    parser, found = Replies(), []
    step = 7 + len(data) // 500
    for start in range(0, len(data), step):
        found += parser.feed(data[start : start + step])
    return found


def _resp(data: bytes, _: Path) -> object:
    connection = resp.Connection.__new__(resp.Connection)
    connection._buffer, connection._socket = b"", Played(data)  # type: ignore[assignment]
    return connection.ask("PING")


def _pgwire(data: bytes, _: Path) -> object:
    connection = pgwire.Connection.__new__(pgwire.Connection)
    connection._buffer, connection._socket = b"", Played(data)  # type: ignore[assignment]
    connection._address = pgwire.Address(1, password="p")
    connection._start_up()
    return connection.value("SELECT 1")


def _disk_log(data: bytes, folder: Path) -> object:
    (folder / "base").mkdir(exist_ok=True)
    (folder / "base.json").write_text("{}")
    (folder / "log").write_bytes(data)
    return recording.Recording.load(folder)


def _scenario(data: bytes, folder: Path) -> object:
    (folder / scenario.FILE).write_bytes(data)
    return scenario.load(folder)


def _results(data: bytes, folder: Path) -> object:
    (folder / results.SUMMARY).write_bytes(data)
    return results.load(folder)


# ---- what they accept


def _histories() -> list[bytes]:
    files = sorted(HISTORIES.glob("*.jsonl"), key=lambda file: file.stat().st_size)
    return [file.read_bytes() for file in files[:20]]


def _records() -> list[bytes]:
    said = Message("assistant", "déjà vu", metadata={"a": [1, {"b": None}]})
    return [encode(said), encode(Message("user", "x")), b'{"role": "user", "content": "plain"}']


def _exported() -> list[bytes]:
    lines = [
        {"recollect": "memory", "format": 1},
        {"session": "s", "metadata": {"a": 1}},
        json.loads(encode(Message("user", "hello"))[:-8]),
    ]
    return [b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"]


def _progress() -> list[bytes]:
    made = resuming.AuditProgress(identity="i", place="p", cursor="7", counts={"gap": 2})
    return [msgspec.json.encode(made)]


def _pg_messages() -> list[bytes]:
    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!i", len(body) + 4) + body

    ready = message(b"Z", b"I")
    row = message(b"T", b"\0\1") + message(b"D", struct.pack("!hi", 1, 2) + b"on")
    welcome = message(b"R", struct.pack("!i", 0)) + message(b"S", b"a\0b\0") + ready
    sasl = message(b"R", struct.pack("!i", 10) + b"SCRAM-SHA-256\0\0")
    asked = message(b"R", struct.pack("!i", 11) + b"r=abc,s=c2FsdA==,i=4096")
    error = message(b"E", b"SERROR\0C28P01\0Mno\0\0")
    return [
        welcome + row + ready,
        sasl + asked,
        welcome + error + ready,
        message(b"R", struct.pack("!i", 3)) + error,
    ]


def _logs() -> list[bytes]:
    magic, body = 0x1122334455667788, b""
    for op, path, data in ((Op.CREATE, b"f", b""), (Op.WRITE, b"", b"abc"), (Op.RENAME, b"f", b"")):
        total = (_RECORD.size + len(path) + len(data) + 7) // 8 * 8
        head = _RECORD.pack(magic, total, 1, 5, 7, 7, op, 0, len(path), 0, 1, 0, len(data), len(data))
        body += (head + path + data).ljust(total, b"\0")
    header = Header()
    header.magic, header.capacity = magic, 1 << 20
    header.tail = HEADER_BYTES + len(body)
    return [bytes(header).ljust(HEADER_BYTES, b"\0") + body]


def _summaries() -> list[bytes]:
    known = {"name": "lost-tail", "target": "t", "sentence": "s", "also": ["hole"], "cells": ["a"]}
    return [json.dumps({"recollect": "0.1.0", "findings": [known], "cells": []}).encode()]


def _scenarios() -> list[bytes]:
    made = scenario.Scenario(target="sqlite", engine="sqlite", policy="wal-full", fault="none", seed=7)
    return [msgspec.json.encode(made, enc_hook=str)]


def _judgements() -> list[bytes]:
    return [b'{"digest":"ff","marks":3,"anomaly":"hole","detail":"d","documented":false}\n' * 3]


def _witnesses() -> list[bytes]:
    return [json.dumps({"store": "u", "mark": {"session": "s", "sequence": 3}}).encode()]


RESP = [
    b"*2\r\n$3\r\nfoo\r\n:12\r\n",
    b"+PONG\r\n",
    b"-ERR no\r\n",
    b"*10\r\n" + b"$1\r\nx\r\n" * 10,
    b"$-1\r\n",
]

PARSERS: dict[str, FuzzedParser] = {
    "history": FuzzedParser(_histories, _history, (HistoryError,)),
    "history, judged": FuzzedParser(_histories, _judged, (HistoryError,)),
    "record": FuzzedParser(_records, lambda data, _: decode(data), ()),
    "exported memory": FuzzedParser(_exported, _filed(transfer.check_file), (RecollectError,)),
    "audit progress": FuzzedParser(
        _progress, _filed(lambda file: resuming.load(file, "i", "p")), (RecollectError,)
    ),
    "witness": FuzzedParser(_witnesses, _filed(witness.remembered_by), (RecollectError,)),
    "baseline": FuzzedParser(_summaries, _filed(baseline.load), (baseline.BadBaseline,)),
    "scenario": FuzzedParser(_scenarios, _scenario, (msgspec.MsgspecError,)),
    "measured recall": FuzzedParser(_summaries, _filed(evaluation.load), (RecollectError,)),
    "judged crash states": FuzzedParser(_judgements, _filed(exploring.load_judgements), (DamagedRecording,)),
    "results": FuzzedParser(_summaries, _results, (msgspec.MsgspecError,)),
    "evaluation cases (YAML)": FuzzedParser(
        lambda: [evaluation.SAMPLE.read_bytes()[:1000]], _filed(evaluation.load_cases), (RecollectError,)
    ),
    "RESP, of the store": FuzzedParser(lambda: RESP, _replies, (ValueError,)),
    "RESP, of the kit": FuzzedParser(lambda: RESP, _resp, (OSError, resp.RespError)),
    "pgwire": FuzzedParser(_pg_messages, _pgwire, (OSError, pgwire.PgError)),
    "disk log": FuzzedParser(_logs, _disk_log, (DamagedRecording, LogFullError)),
}


# ---- mutations

NUMBERS = [b"0", b"-1", b"1e999", b"9" * 25, b"18446744073709551616", b"NaN", b"2147483648", b"0.5"]
ODD = [
    *(b"\0", b"\xff\xfe", "\ud800".encode("utf-8", "surrogatepass"), b"\r\n", b"\n", b"null", b"{}", b"[]"),
    *(b"true", b'"', b"&a [*a]", b"!!python/object:os.system", b"2026-99-99", b"\xc3", "\u2028".encode()),
]


def mutated(data: bytes, seeds: list[bytes], rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        rng.choice(MUTATIONS)(changed, seeds, rng)
    return bytes(changed)


def _flip(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] ^= 1 << rng.randrange(8)


def _cut(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    start = _place(data, rng)
    del data[start : start + rng.choice((1, 2, 8, 64, len(data)))]


def _repeat(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    start = _place(data, rng)
    data[start:start] = data[start : start + rng.choice((1, 4, 32))] * rng.choice((1, 2, 50))


def _insert(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    start = _place(data, rng)
    data[start:start] = rng.choice(ODD + NUMBERS)


def _number(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    digits = [place for place, byte in enumerate(data[-70_000:]) if 0x30 <= byte <= 0x39]
    if digits:
        start = rng.choice(digits) + max(0, len(data) - 70_000)
        data[start : start + 1] = rng.choice(NUMBERS)


def _integer(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    start = _place(data, rng)
    value = rng.choice((0, 1, -1, 2**31 - 1, -(2**31), rng.randrange(1 << 20)))
    data[start : start + 4] = struct.pack(rng.choice(("!i", "<i")), value)


def _nest(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    start = _place(data, rng)
    data[start:start] = rng.choice((b"[", b'{"a":', b"*1\r\n", b"- ")) * rng.choice((3, 200, 100_000))


def _mix(data: bytearray, seeds: list[bytes], rng: random.Random) -> None:
    other, start = rng.choice(seeds), _place(data, rng)
    data[start:] = other[rng.randrange(len(other)) :]


MUTATIONS = [_flip, _flip, _cut, _repeat, _insert, _insert, _number, _integer, _nest, _mix]


def _place(data: bytearray, rng: random.Random) -> int:
    """Anywhere; in a log with a long head also often behind it."""
    if len(data) > HEADER_BYTES and rng.random() < 0.8:
        return rng.choice((rng.randrange(40), rng.randrange(HEADER_BYTES, len(data))))
    return rng.randrange(len(data)) if data else 0


def failures(name: str, count: int, seed: int, folder: Path) -> Iterator[tuple[bytes, str]]:
    """Mutations on which the parser does what it may not, with what it did."""
    parser, rng = PARSERS[name], random.Random(f"{name}/{seed}")
    seeds = parser.seeds()
    for number in range(-len(seeds), count):  # the files themselves come first
        data = seeds[number] if number < 0 else mutated(rng.choice(seeds), seeds, rng)
        began = time.thread_time()
        try:
            parser.parse(data, folder)
        except parser.allowed:
            pass
        except Exception as error:
            yield data, "".join(traceback.format_exception_only(error)).strip() + _where(error)
        if (took_s := time.thread_time() - began) > PARSE_S:
            yield data, f"took {took_s:.1f} s"


def _where(error: BaseException) -> str:
    frames: Any = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/recollect/" in frame.filename]
    return f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
