"""A correct store, simulated: concurrent clients, unknown outcomes, crashes, forgets, retention.

Every operation is invoked, takes effect at one later moment, and completes after that, so whatever the
interleaving, the history is valid and a checker that complains is wrong. An operation may also end `unknown`
before it has taken effect, and take effect late, or never.

The order of the steps is drawn from a seeded generator. Time advances with each event.
"""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from recollect.verify.judging.history import HistoryWriter, RecordedHistory
from recollect.verify.judging.op import (
    Acknowledged,
    Element,
    Event,
    FaultDetail,
    HistoryHeader,
    Operation,
    ReadAsked,
    RefreshRule,
    RetractAsked,
    RowsCounted,
    WriteAsked,
)
from recollect.verify.judging.read_deltas import to_runs

Result = Literal["pending", "applied", "conflict"]
CRASHES = ("kill-engine", "power-loss", "restart")
NUISANCES = ("latency", "cut", "pause", "concurrent-writers")


def checksum_of(message: int) -> int:
    return message * 7919 + 13


@dataclass
class Features:
    """What a simulated run contains; drawn at random, so that histories differ in kind."""

    sessions: int = 2
    processes: int = 3
    batch_max: int = 1
    forgets: bool = False
    windows: bool = False
    contexts: bool = False
    searches: bool = False
    counts: bool = False
    compare_and_set: bool = False
    saves: bool = False
    changes: bool = False
    faults: bool = False
    retention_s: float | None = None
    refresh: RefreshRule = "append"
    unknowns: float = 0.1
    steps: int = 150

    @classmethod
    def draw(cls, rng: random.Random, **fixed: object) -> Features:
        features = cls(
            sessions=rng.randint(1, 4),
            processes=rng.randint(1, 6),
            batch_max=rng.choice((1, 1, 3)),
            forgets=rng.random() < 0.3,
            windows=rng.random() < 0.4,
            contexts=rng.random() < 0.3,
            searches=rng.random() < 0.3,
            counts=rng.random() < 0.3,
            compare_and_set=rng.random() < 0.3,
            saves=rng.random() < 0.3,
            faults=rng.random() < 0.6,
            retention_s=rng.choice((None, None, None, 0.3, 2.0)),
            refresh=rng.choice(("append", "read", "never", "message")),
            unknowns=rng.choice((0.0, 0.05, 0.3)),
            steps=rng.randint(20, 300),
            changes=rng.random() < 0.3,
        )
        for name, value in fixed.items():
            setattr(features, name, value)
        return features


@dataclass
class Memory:
    """One session of the simulated store."""

    name: str
    log: list[int] = field(default_factory=list)
    sequence: int = 0
    expires_s: float | None = None
    message_expires_s: dict[int, float] = field(default_factory=dict)


@dataclass
class Open:
    """An operation that was invoked and has not completed."""

    process: int
    operation: Operation
    memory: Memory
    write: WriteAsked | None = None
    ask: ReadAsked = field(default_factory=ReadAsked)
    parts: tuple[ReadAsked, ...] = ()
    base: tuple[int, ...] = ()
    retracted: tuple[int, ...] = ()
    result: Result = "pending"
    seen: list[list[int]] = field(default_factory=list)
    rows: int = 0


class Simulation:
    """Drives simulated clients, step by step, and writes the history."""

    def __init__(self, rng: random.Random, features: Features, header: HistoryHeader | None = None) -> None:
        self.rng = rng
        self.features = features
        self.now_s = 0.0
        self.offset_s = 0.0
        self.file = io.BytesIO()
        header = header or HistoryHeader(recollect="0.1.0", engine="redis", policy="aof-always")
        bound_s = 0.02
        header = msgspec.structs.replace(
            header, refresh=features.refresh, clock_bound_s=bound_s, ok_ops_min=0
        )
        self.writer = HistoryWriter(self.file, header, clock=lambda: self.now_s, wall=lambda: self.now_s)
        self.memories = [Memory(f"s{number}") for number in range(features.sessions)]
        self.open: dict[int, Open] = {}
        self.limbo: list[Open] = []
        self.in_doubt: list[tuple[Memory, WriteAsked]] = []
        self.applied: set[int] = set()
        self.acked: dict[int, int] = {}
        self.written_by: dict[int, int] = {}
        self.turn_of: dict[int, WriteAsked] = {}
        self.retired: set[int] = set()
        self.next_process = features.processes
        self.processes = list(range(features.processes))
        self.sure_forgets = False
        self.engine_up = True
        self.fault: str | None = None
        self.last_read: dict[tuple[int, str], tuple[int, list[int]]] = {}

    # -- time ---------------------------------------------------------------------------------------------

    def tick(self, at_most_s: float = 0.01) -> None:
        self.now_s += self.rng.random() * at_most_s + 1e-6

    def engine_s(self) -> float:
        return self.now_s + self.offset_s

    def jitter_s(self) -> float:
        return self.rng.uniform(-0.009, 0.009)

    def expire(self) -> None:
        """Drop what the engine's clock says is over."""
        for memory in self.memories:
            if memory.expires_s is not None and self.engine_s() >= memory.expires_s:
                memory.log.clear()
                memory.expires_s = None
            over = [m for m in memory.log if memory.message_expires_s.get(m, 1e18) <= self.engine_s()]
            memory.log = [m for m in memory.log if m not in over]

    def renew(self, memory: Memory, operation: Operation, first: int, count: int) -> None:
        retention_s, refresh = self.features.retention_s, self.features.refresh
        if retention_s is None:
            return
        end_s = self.engine_s() + retention_s + self.jitter_s()
        if refresh == "message":
            memory.message_expires_s |= dict.fromkeys(range(first, first + count), end_s)
        elif operation in ("append", "save", "replace", "retract"):
            if refresh != "never" or memory.expires_s is None:
                memory.expires_s = end_s
        elif refresh == "read" and memory.log:
            memory.expires_s = end_s

    # -- one step -----------------------------------------------------------------------------------------

    def run(self, steps: int | None = None) -> None:
        for _ in range(self.features.steps if steps is None else steps):
            self.step()

    def step(self) -> None:
        self.tick(0.2 if self.rng.random() < 0.02 else 0.01)
        self.expire()
        draw = self.rng.random()
        idle = [process for process in self.processes if process not in self.open]
        if self.features.faults and draw < 0.03:
            self.toggle_fault()
        elif self.limbo and draw < 0.08:
            self.apply(self.limbo.pop(self.rng.randrange(len(self.limbo))))
        elif idle and (draw < 0.45 or not self.open):
            self.invoke(self.rng.choice(idle), self.rng.choice(self.memories))
        elif self.open:
            self.advance(self.rng.choice(list(self.open.values())))

    def advance(self, op: Open) -> None:
        """Let an open operation take effect, or complete."""
        if not self.engine_up:
            self.give_up(op)
        elif op.result == "pending":
            if self.rng.random() < self.features.unknowns:
                self.give_up(op)
            else:
                self.apply(op)
        elif self.rng.random() < self.features.unknowns:
            self.complete(op, "unknown")
        else:
            self.complete(op, "fail" if op.result == "conflict" else "ok")

    def give_up(self, op: Open) -> None:
        """The client stops waiting; the request was refused, is lost, or is still on its way."""
        draw = self.rng.random()
        mutates = op.operation in ("append", "save", "replace", "retract", "forget")
        if draw < 0.3 and op.result == "pending" and mutates:
            self.complete(op, "fail")
            return
        if draw < 0.6 and op.result == "pending" and self.engine_up and mutates:
            self.limbo.append(op)
        self.complete(op, "unknown")

    # -- operations ---------------------------------------------------------------------------------------

    def invoke(self, process: int, memory: Memory) -> Open:
        features = self.features
        weights: dict[Operation, int] = {
            "append": 5,
            "read": 5,
            "forget": features.forgets,
            "context": 2 * features.contexts,
            "search": 2 * features.searches,
            "count": 2 * features.counts,
            "save": 3 * features.saves,
            "replace": 2 * features.changes,
            "retract": 3 * features.changes,
        }
        operation = self.rng.choices(list(weights), list(weights.values()))[0]
        if operation == "append":
            return self.invoke_append(process, memory)
        if operation == "save":
            return self.invoke_save(process, memory)
        if operation == "replace":
            return self.invoke_replace(process, memory)
        if operation == "retract":
            return self.invoke_retract(process, memory)
        if operation == "read":
            return self.invoke_read(process, memory, self.draw_ask(memory))
        op = Open(process, operation, memory)
        if operation == "context":
            op.parts = (ReadAsked(), self.draw_ask(memory), self.draw_ask(memory))
        self.writer.invoke(process, memory.name, operation)
        self.open[process] = op
        return op

    def draw_ask(self, memory: Memory) -> ReadAsked:
        draw = self.rng.random()
        if not self.features.windows or draw < 0.5:
            return ReadAsked()
        if draw < 0.8 or not memory.log:
            return ReadAsked(last=self.rng.randint(1, 8))
        return ReadAsked(after=self.rng.choice(memory.log))

    def invoke_read(self, process: int, memory: Memory, ask: ReadAsked | None = None) -> Open:
        ask = ask or ReadAsked()
        op = Open(process, "read", memory, ask=ask)
        self.writer.invoke_read(process, memory.name, None if ask == ReadAsked() else ask)
        self.open[process] = op
        return op

    def invoke_append(self, process: int, memory: Memory, count: int | None = None) -> Open:
        retry = [(m, w) for m, w in self.in_doubt if m is memory]
        if retry and count is None and self.rng.random() < 0.5:
            write = self.rng.choice(retry)[1]
        else:
            expect = None
            if count is None and self.features.compare_and_set and self.rng.random() < 0.5:
                expect = memory.sequence
            write = self.new_write(process, count or self.rng.randint(1, self.features.batch_max), expect)
        return self.invoke_write(process, memory, "append", write)

    def invoke_save(self, process: int, memory: Memory) -> Open:
        """Read-modify-write: only a process that has read the session can save it."""
        base, elements = self.last_read.get((process, memory.name), (None, []))
        if base is None:
            return self.invoke_read(process, memory)
        write = self.new_write(process, 1, None)
        dropped: tuple[int, ...] = ()
        if elements and self.rng.random() < 0.2:
            dropped = to_runs(elements[: self.rng.randint(1, len(elements))])
        write = msgspec.structs.replace(write, base=base, dropped=dropped)
        op = self.invoke_write(process, memory, "save", write)
        op.base = tuple(elements)
        return op

    def invoke_replace(self, process: int, memory: Memory) -> Open:
        """Puts new messages in the place of those that the process has read, if nobody changed anything since."""
        base, elements = self.last_read.get((process, memory.name), (None, []))
        if base is None:
            return self.invoke_read(process, memory)
        write = self.new_write(process, self.rng.randint(1, 3), None)
        write = msgspec.structs.replace(write, base=base, dropped=to_runs(elements))
        op = self.invoke_write(process, memory, "replace", write)
        op.base = tuple(elements)
        return op

    def invoke_retract(self, process: int, memory: Memory) -> Open:
        """Removes some of the messages that the process has read, all or none."""
        _, elements = self.last_read.get((process, memory.name), (None, []))
        if not elements:
            return self.invoke_read(process, memory)
        chosen = sorted(self.rng.sample(elements, min(len(elements), self.rng.randint(1, 2))))
        self.writer.invoke_retract(process, memory.name, RetractAsked(to_runs(chosen)))
        self.open[process] = op = Open(process, "retract", memory, retracted=tuple(chosen))
        return op

    def new_write(self, process: int, count: int, expect: int | None) -> WriteAsked:
        first = self.writer.messages
        checksums = tuple(checksum_of(message) for message in range(first, first + count))
        write = WriteAsked(first, checksums, f"t{first}", expect, self.features.retention_s)
        for message in range(first, first + count):
            self.turn_of[message] = write
            self.written_by[message] = process
        return write

    def invoke_write(self, process: int, memory: Memory, operation: Operation, write: WriteAsked) -> Open:
        self.writer.invoke_write(process, memory.name, operation, write)
        self.open[process] = op = Open(process, operation, memory, write)
        return op

    # -- effects ------------------------------------------------------------------------------------------

    def apply(self, op: Open) -> None:
        self.expire()
        op.result = "applied"
        memory = op.memory
        if op.write is not None:
            self.apply_write(op, memory, op.write)
        elif op.operation == "retract":
            self.apply_retract(op, memory)
        elif op.operation == "forget":
            memory.log.clear()
            memory.expires_s = None
        elif op.operation == "count":
            op.rows = len(memory.log)
        else:
            asks = op.parts or (op.ask,)
            op.seen = [self.answer(memory, ask) for ask in asks]
            if op.operation in ("read", "context"):
                self.renew(memory, op.operation, 0, 0)

    def apply_retract(self, op: Open, memory: Memory) -> None:
        if not set(op.retracted) <= set(memory.log):
            op.result = "conflict"
            return
        memory.log = [message for message in memory.log if message not in op.retracted]
        memory.sequence += 1
        if self.rng.random() < 0.5:  # stores differ in whether taking back renews a session
            self.renew(memory, "retract", 0, 0)

    def apply_write(self, op: Open, memory: Memory, write: WriteAsked) -> None:
        count = len(write.checksums)
        if write.first in self.applied:
            return  # the same turn again: stored once
        conflict = write.expect is not None and write.expect != memory.sequence
        if op.operation in ("save", "replace") and tuple(memory.log) != op.base:
            conflict = True
        if conflict:
            op.result = "conflict"
            return
        self.applied.add(write.first)
        if write.dropped:
            kept = len(op.base) - sum(write.dropped[1::2])
            memory.log = memory.log[len(memory.log) - kept :] if kept else []
        memory.log += range(write.first, write.first + count)
        memory.sequence += count
        self.renew(memory, op.operation, write.first, count)

    def answer(self, memory: Memory, ask: ReadAsked) -> list[int]:
        log = memory.log
        if ask.after is not None:
            return log[log.index(ask.after) + 1 :] if ask.after in log else list(log)
        return list(log) if ask.last is None else log[-ask.last :]

    # -- completions --------------------------------------------------------------------------------------

    def complete(self, op: Open, kind: str) -> None:
        del self.open[op.process]
        if kind == "unknown" and op.operation == "forget" and self.sure_forgets:
            self.limbo = [late for late in self.limbo if late is not op]
            kind = "ok" if op.result == "applied" else "fail"
        if kind == "ok":
            self.acknowledge(op)
            return
        record = self.writer.fail if kind == "fail" else self.writer.unknown
        record(op.process, "Conflict" if op.result == "conflict" else "no answer")
        if (
            kind == "unknown"
            and op.write is not None
            and op.operation == "append"
            and op.write.expect is None
        ):
            self.in_doubt.append((op.memory, op.write))

    def acknowledge(self, op: Open) -> None:
        process = op.process
        if op.write is not None:
            index = self.writer.ok(
                process, Acknowledged(op.memory.sequence) if self.rng.random() < 0.1 else None
            )
            for message in range(op.write.first, op.write.first + len(op.write.checksums)):
                self.acked.setdefault(message, index)
            self.in_doubt = [(m, w) for m, w in self.in_doubt if w.first != op.write.first]
        elif op.operation in ("forget", "retract"):
            self.writer.ok(process)
        elif op.operation == "count":
            self.writer.ok(process, RowsCounted(op.rows))
        elif op.operation == "search":
            self.writer.ok_search(process, op.seen[0], self.rng.sample(op.seen[0], len(op.seen[0])))
        elif op.operation == "context":
            parts = [(ask, elements(seen)) for ask, seen in zip(op.parts, op.seen, strict=True)]
            self.writer.ok_context(process, parts)
        else:
            index = self.writer.ok_read(process, elements(op.seen[0]))
            if op.ask == ReadAsked():
                self.last_read[process, op.memory.name] = (index, op.seen[0])

    # -- faults -------------------------------------------------------------------------------------------

    def toggle_fault(self) -> None:
        if self.fault is not None:
            self.heal()
        elif self.features.retention_s is not None and self.rng.random() < 0.5:
            self.move_clock(self.rng.uniform(0.05, 3.0))
        elif self.rng.random() < 0.3:
            self.kill_client()
        elif self.rng.random() < 0.6:
            self.crash(self.rng.choice(CRASHES))
        else:
            self.fault = self.rng.choice(NUISANCES)
            self.writer.fault_injected(self.fault)

    def move_clock(self, offset_s: float) -> None:
        self.fault = "clock-forward"
        self.offset_s = offset_s
        self.writer.fault_injected("clock-forward", FaultDetail(offset_s=offset_s))
        self.expire()

    def kill_client(self) -> None:
        """A client dies with its operation open; nobody ever completes it."""
        self.writer.fault_injected("kill-app")
        if self.open:
            op = self.open[self.rng.choice(list(self.open))]
            if op.operation == "forget" and self.sure_forgets:
                self.complete(op, "unknown")
                self.writer.fault_healed("kill-app")
                return
            del self.open[op.process]
            if op.result == "pending" and self.rng.random() < 0.5 and op.write is not None:
                self.limbo.append(op)
            self.processes.remove(op.process)
            self.processes.append(self.next_process)
            self.next_process += 1
        self.tick()
        self.writer.fault_healed("kill-app")

    def crash(self, name: str) -> None:
        self.fault = name
        self.writer.fault_injected(name)
        self.tick()
        self.writer.engine_stopped()
        self.engine_up = False
        self.limbo.clear()
        for op in list(self.open.values()):
            if self.rng.random() < 0.7:
                self.complete(op, "unknown")

    def heal(self) -> None:
        if self.fault is None:
            return
        if not self.engine_up:
            for op in list(self.open.values()):
                self.give_up(op)
            self.writer.engine_started()
            self.engine_up = True
            self.tick()
        self.expire()
        self.writer.fault_healed(self.fault)
        self.offset_s = 0.0
        self.fault = None

    # -- the end ------------------------------------------------------------------------------------------

    def quiesce(self) -> None:
        """Heal everything and let every open operation complete."""
        self.heal()
        for op in list(self.open.values()):
            self.tick()
            if op.result == "pending":
                self.apply(op)
            self.complete(op, "fail" if op.result == "conflict" else "ok")

    def read_now(self, process: int, memory: Memory, ask: ReadAsked | None = None) -> Open:
        """One undisturbed read, from invocation to completion."""
        self.tick()
        self.expire()
        op = self.invoke_read(process, memory, ask)
        self.tick()
        self.apply(op)
        self.tick()
        self.complete(op, "ok")
        return op

    def append_now(self, process: int, memory: Memory, count: int = 1) -> list[int]:
        """One undisturbed append; returns its messages."""
        self.tick()
        op = self.invoke_append(process, memory, count)
        self.tick()
        self.apply(op)
        self.tick()
        self.complete(op, "ok")
        assert op.write is not None
        return list(range(op.write.first, op.write.first + count))

    def retract_now(self, memory: Memory) -> None:
        """Removes everything, message by message, in a quiet moment."""
        process = self.rng.choice(self.processes)
        self.tick()
        self.writer.invoke_retract(process, memory.name, RetractAsked(to_runs(memory.log)))
        self.tick()
        memory.log.clear()
        self.writer.ok(process)

    def read_all(self) -> None:
        for memory in self.memories:
            for process in self.rng.sample(self.processes, min(2, len(self.processes))):
                self.read_now(process, memory)

    def history(self) -> RecordedHistory:
        self.writer.flush()
        lines = self.file.getvalue().split(b"\n")
        header = msgspec.json.decode(lines[0], type=HistoryHeader)
        return RecordedHistory(header, msgspec.json.Decoder(Event).decode_lines(b"\n".join(lines[1:])))


def elements(messages: list[int]) -> list[Element]:
    return [Element(message, checksum_of(message)) for message in messages]


def valid_history(seed: int, header: HistoryHeader | None = None, **fixed: object) -> RecordedHistory:
    """A random valid history: a run, then everything read back."""
    rng = random.Random(seed)
    simulation = Simulation(rng, Features.draw(rng, **fixed), header)
    simulation.run()
    simulation.quiesce()
    simulation.read_all()
    return simulation.history()
