"""Saved runs to render: histories written by the real writer and judged by the real checkers, in a made-up time.

The clock is an argument of the writer, so that a run of ten seconds costs none, and the same seed is the same page.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import Element, HistoryHeader, Operation, WriteAsked
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.results import Result, Results
from recollect.verify.running.scenario import Scenario

WRITERS = 3
READER = 3


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class _Client:
    """A run being made up: what each session holds, and who waits for what."""

    writer: HistoryWriter
    clock: Clock
    rng: random.Random
    sessions: tuple[str, ...]
    kept: dict[str, list[list[Element]]] = field(default_factory=dict)
    open: dict[int, tuple[str, list[Element]]] = field(default_factory=dict)

    def step(self) -> None:
        self.clock.now_s += self.rng.expovariate(400)
        process = self.rng.randrange(WRITERS + 1)
        if process in self.open:
            self._complete(process)
        elif process == READER:
            session = self.rng.choice(self.sessions)
            self.writer.invoke_read(process, session)
            self.open[process] = (session, [])
        else:
            self._append(process)

    def _append(self, process: int) -> None:
        first = self.writer.messages
        sums = tuple(range(first, first + self.rng.choice((1, 2))))
        session = self.rng.choice(self.sessions)
        operation: Operation = "append"
        self.writer.invoke_write(process, session, operation, WriteAsked(first, sums, turn=f"turn-{first}"))
        self.open[process] = (session, [Element(first + n, value) for n, value in enumerate(sums)])

    def _complete(self, process: int) -> None:
        session, added = self.open.pop(process)
        if process == READER:
            self.writer.ok_read(process, self.elements(session))
        else:
            self.kept[session].append(added)
            self.writer.ok(process)

    def elements(self, session: str) -> list[Element]:
        return [element for turn in self.kept[session] for element in turn]

    def finish(self) -> None:
        for process in list(self.open):
            self._complete(process)

    def all_busy(self) -> None:
        """Every writer has an append under way: the fault leaves its outcome unknown."""
        for process in range(WRITERS):
            if process not in self.open:
                self._append(process)

    def fail_open(self) -> None:
        for process in list(self.open):
            self.clock.now_s += 0.001
            self.writer.unknown(process, "connection reset by peer")
        self.open.clear()


def save_run(
    folder: Path,
    scenario: Scenario,
    *,
    steps: int = 400,
    lost: int = 0,
    sessions: tuple[str, ...] = ("session-0", "session-1", "session-2"),
    losing: tuple[str, ...] | None = None,
    down_s: float = 3.0,
) -> Result:
    """A run with a fault in the middle that takes the last `lost` turns of each session, or of the `losing` ones."""
    folder.mkdir(parents=True)
    rng, clock = random.Random(f"{scenario.name}/{scenario.seed}"), Clock()
    header = HistoryHeader(
        recollect="0.1.0",
        seed=scenario.seed,
        target=scenario.target,
        engine=scenario.engine,
        engine_version="7.0.15",
        policy=scenario.policy,
        fault=scenario.fault,
        workload=scenario.workload,
        ends=True,
    )
    path = folder / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, header, clock=clock, wall=clock) as writer:
        run = _Client(writer, clock, rng, sessions, {session: [] for session in sessions})
        for _ in range(steps // 2):
            run.step()
        run.all_busy()
        writer.fault_injected(scenario.fault)
        writer.engine_stopped()
        run.fail_open()
        for session in sessions if losing is None else losing:
            run.kept[session] = run.kept[session][: len(run.kept[session]) - lost]
        clock.now_s += down_s
        writer.engine_started()
        writer.fault_healed(scenario.fault)
        for _ in range(steps // 2):
            run.step()
        run.finish()
        for session in sessions:
            writer.invoke_read(READER, session)
            clock.now_s += 0.002
            writer.ok_read(READER, run.elements(session))
        writer.run_ended()
    return Result(
        scenario=scenario,
        verdict=analyze(History(path)),
        engine_version="7.0.15",
        provider="system",
        elapsed_s=2.0,
        operations=steps,
        folder=folder.name,
    )


TARGETS = ("sqlite", "redis", "postgres", "myapp.memory:make_store")
FAULTS = ("kill-engine", "restart", "power-loss", "pause", "cut")


def save_matrix(folder: Path, cells: int = 100, *, steps: int = 400) -> Results:
    """A run of many cells: most held, some violated, one in ten skipped."""
    results: list[Result] = []
    for place in range(cells):
        scenario = Scenario(
            target=TARGETS[place % 4],
            engine="redis",
            policy=("aof-always", "aof-everysec", "rdb")[place // 4 % 3],
            fault=FAULTS[place // 12 % 5],
            workload="turns" if place < 60 else "mixed",
            seed=place,
        )
        if place % 10 == 9:
            verdict = Verdict(status="skipped", reason="budget")
            results.append(Result(scenario=scenario, verdict=verdict))
            continue
        lost = 3 if place % 7 == 3 else 0
        results.append(save_run(folder / f"{place:03}-cell", scenario, steps=steps, lost=lost))
    made = Results(seed=7, elapsed_s=41.2, folder=str(folder), results=tuple(results))
    made.save(folder)
    return made
