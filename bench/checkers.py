"""What judging a history costs: time per operation and peak memory, from the file to the verdict.

`python bench/checkers.py [--large] [--out FILE]` writes histories of 10 thousand, 100 thousand and 1 million
operations (with `--large` also 10 million: 3 GB of temporary disk), judges each in a fresh process on one
core and prints a table. The mix: 16 concurrent clients, 100 sessions, half appends of one or two messages,
half reads (whole sessions and `last=20`), an engine kill every 20,000 operations, some unknown outcomes. The
verdict must be `held`, else the numbers are worth nothing and the exit code is 1. Rates are per second of
processor time, the wall clock stands beside it.

The last row is what compact reads are for: one session of 100,000 messages, read whole 1,000 times.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History
from recollect.verify.judging.op import Event, HistoryHeader, Kind, ReadAsked, Seen, WriteAsked

SESSIONS = 100
CLIENTS = 16
WINDOW = 20
FAULT_EVERY = 20_000
BLOCK = 5_000


class Generator:
    """Valid histories, made fast: effects are applied round by round, reads are written as differences."""

    def __init__(self, ops: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ops = ops
        self.index = 0
        self.messages = 0
        self.logs: list[list[int]] = [[] for _ in range(SESSIONS)]
        self.shown = [0] * SESSIONS  # length of the latest whole view
        self.window = [(0, 0)] * SESSIONS  # the latest window

    def events(self) -> Iterator[Event]:
        done = 0
        while done < self.ops:
            if done and done % FAULT_EVERY < CLIENTS:
                yield self.disturb("fault-injected", "kill-engine")
                yield self.disturb("engine-stopped", "")
                yield self.disturb("engine-started", "")
                yield self.disturb("fault-healed", "kill-engine")
            yield from self.round()
            done += CLIENTS
        for number in range(SESSIONS):
            yield self.event("invoke", 0, number, "read")
            yield self.event("ok", 0, number, "read", self.whole(number, len(self.logs[number])))

    def round(self) -> Iterator[Event]:
        """Every client invokes, takes effect and completes; the orders are shuffled, so all overlap."""
        rng = self.rng
        plans: list[tuple[int, int, WriteAsked | None, ReadAsked | None]] = []
        for client in range(CLIENTS):
            number = rng.randrange(SESSIONS)
            if client % 2:
                count = 1 + (rng.random() < 0.1)
                write = WriteAsked(self.messages, tuple(range(count)), f"t{self.messages}")
                self.messages += count
                yield self.event("invoke", client, number, "append", write)
                plans.append((client, number, write, None))
            else:
                ask = ReadAsked(last=WINDOW) if client % 4 else None
                yield self.event("invoke", client, number, "read", ask)
                plans.append((client, number, None, ask))
        rng.shuffle(plans)
        lengths = []
        for _, number, written, _ in plans:
            if written is not None:
                self.logs[number] += range(written.first, written.first + len(written.checksums))
            lengths.append(len(self.logs[number]))
        for (client, number, written, ask), length in zip(plans, lengths, strict=True):
            if written is not None:
                kind: Kind = "unknown" if self.index % 1000 == 0 else "ok"
                yield self.event(kind, client, number, "append")
            elif ask is not None and length >= WINDOW:
                yield self.event("ok", client, number, "read", self.last(number, length))
            else:
                yield self.event("ok", client, number, "read", self.whole(number, length))

    def whole(self, number: int, length: int) -> Seen:
        keep = min(self.shown[number], length)
        self.shown[number] = length
        return Seen(0, keep, _runs(self.logs[number][keep:length]))

    def last(self, number: int, length: int) -> Seen:
        start, end = length - WINDOW, length
        old_start, old_end = self.window[number]
        self.window[number] = (start, end)
        if old_start <= start < old_end <= end:
            return Seen(start - old_start, old_end - start, _runs(self.logs[number][old_end:end]))
        return Seen(0, 0, _runs(self.logs[number][start:end]))

    def event(
        self,
        kind: Kind,
        client: int,
        number: int,
        operation: str,
        value: WriteAsked | ReadAsked | Seen | None = None,
    ) -> Event:
        event = Event(self.index, kind, round(self.index * 1e-5, 6), client, f"s{number}", operation, value)
        self.index += 1
        return event

    def disturb(self, kind: Kind, fault: str) -> Event:
        return self.event(kind, -1, 0, fault)


def _runs(numbers: list[int]) -> tuple[int, ...]:
    return tuple(value for number in numbers for value in (number, 1))


def deep_session(messages: int, reads: int) -> Iterator[Event]:
    """One session of many messages, read whole many times while it grows."""
    generator = Generator(0, 0)
    every = messages // reads
    for message in range(messages):
        generator.logs[0].append(message)
        yield generator.event("invoke", 0, 0, "append", WriteAsked(message, (0,)))
        yield generator.event("ok", 0, 0, "append")
        if message % every == every - 1:
            yield generator.event("invoke", 1, 0, "read")
            yield generator.event("ok", 1, 0, "read", generator.whole(0, message + 1))


def save(path: Path, events: Iterator[Event], fault: str) -> None:
    encoder = msgspec.json.Encoder()
    header = HistoryHeader(recollect="bench", engine="redis", policy="aof-always", fault=fault)
    with path.open("wb") as file:
        file.write(encoder.encode(header) + b"\n")
        block: list[Event] = []
        for event in events:
            block.append(event)
            if len(block) == BLOCK:
                file.write(encoder.encode_lines(block))
                block.clear()
        file.write(encoder.encode_lines(block))


def measure(path: Path) -> dict[str, float | str]:
    """Judge one history in this process; the caller starts a fresh one for each."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    verdict = analyze(History(path))
    return {
        "status": verdict.status,
        "wall_s": time.perf_counter() - wall_s,
        "cpu_s": time.process_time() - cpu_s,
        "peak_mb": _peak_mb(),
    }


def _peak_mb() -> float:
    """This process's own peak; `ru_maxrss` would include the parent's, from before the exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measure_apart(path: Path, repeats: int) -> dict[str, float | str]:
    """The best of several fresh processes: what the machine's other work adds is not the checkers' cost."""
    results = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, __file__, "--measure", str(path)], check=True, capture_output=True, text=True
        )
        results.append(json.loads(done.stdout))
    return min(results, key=lambda result: float(result["cpu_s"]))


def report(name: str, ops: int, events: Iterator[Event], folder: Path, repeats: int) -> dict[str, object]:
    path = folder / "history.jsonl"
    save(path, events, "" if name == "deep" else "kill-engine" if ops > FAULT_EVERY else "")
    result = measure_apart(path, repeats)
    size_mb = path.stat().st_size / 1e6
    path.unlink()
    wall_s, cpu_s = float(result["wall_s"]), float(result["cpu_s"])
    print(
        f"{name:>10} {ops:>11,} {wall_s:>9.2f} {cpu_s:>9.2f} {cpu_s / ops * 1e6:>9.2f} {ops / cpu_s:>12,.0f} "
        f"{float(result['peak_mb']):>9.0f} {size_mb:>9.1f}  {result['status']}",
        flush=True,
    )
    return {"name": name, "ops": ops, "file_mb": size_mb, **result}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--large", action="store_true", help="also 10 million operations")
    parser.add_argument("--out", type=Path, default=Path("bench/results/checkers.json"))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure)))
        return 0
    sizes = [10_000, 100_000, 1_000_000] + [10_000_000] * options.large
    print(f"seed {options.seed}; from file to verdict, one core, Python {platform.python_version()}")
    columns = (f"{name:>9}" for name in ("wall s", "cpu s", "µs/op"))
    print(f"{'history':>10} {'ops':>11} {' '.join(columns)} {'ops/s':>12} {'peak MB':>9} {'file MB':>9}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for ops in sizes:
            events = Generator(ops, options.seed).events()
            rows.append(report("mixed", ops, events, Path(folder), 1 if ops > 1_000_000 else 3))
        rows.append(report("deep", 101_000, deep_session(100_000, 1_000), Path(folder), 3))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    document = {"seed": options.seed, "python": platform.python_version(), "rows": rows}
    options.out.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(row["status"] == "held" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
