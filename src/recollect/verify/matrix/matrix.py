"""Many cells: run side by side, inside the budget, each violation run again and made smaller.

Cells run in processes of their own (`recollect.verify.matrix.cell`), so that one that goes wrong takes nobody along.
What happens is told as events to whoever listens: the terminal, a test, nobody.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import msgspec

from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.cell_process import CELL_TIMEOUT_S, CellProcess, Done, Order, Step
from recollect.verify.matrix.results import Result, Results
from recollect.verify.matrix.selection import Cell
from recollect.verify.running.scenario import Scenario

CONFIRM_TIMES = 3
SHRINK_TIMES = 6


@dataclass
class Event:
    """Something to show: a cell started, took a step, or ended."""

    kind: str
    scenario: Scenario
    step: str = ""
    result: Result | None = None


Listener = Callable[[Event], None]


@dataclass
class _Job:
    """A cell on its way: the first run, then runs to confirm it, then smaller ones."""

    cell: Cell
    purpose: str = "first"
    scenario: Scenario | None = None
    first: Result | None = None
    seen: int = 0
    again: int = 0
    smallest: Scenario | None = None
    tries: deque[Scenario] = field(default_factory=deque)

    @property
    def next_scenario(self) -> Scenario:
        return self.scenario or self.cell.scenario


_Process = CellProcess[tuple[int, _Job]]


class Matrix:
    def __init__(
        self,
        cells: list[Cell],
        folder: Path,
        *,
        workers: int = 2,
        budget_s: float | None = None,
        fail_fast: bool = False,
        confirm: bool = True,
        listener: Listener = lambda event: None,
    ) -> None:
        self._folder = folder
        self._workers = workers
        self._budget_s = budget_s
        self._fail_fast = fail_fast
        self._confirm = confirm
        self._listener = listener
        self._started = time.monotonic()
        self._results: dict[int, Result] = {}
        self._waiting: deque[tuple[int, _Job]] = deque()
        self._again: deque[tuple[int, _Job]] = deque()
        for place, cell in enumerate(cells):
            if cell.skipped is not None:
                self._results[place] = _skipped(cell.scenario, cell.skipped)
            else:
                self._waiting.append((place, _Job(cell)))
        self._cells = cells
        wanted = {name for _, job in self._waiting for name in job.cell.scenario.modules}
        self._preload = tuple(sorted(wanted))
        self._stopped: str | None = None
        """Why no further cell is begun."""

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def run(self) -> Results:
        """Runs all cells; interrupted, it returns what is known so far."""
        processes: list[_Process] = []
        try:
            count = min(self._workers, max(1, len(self._waiting)))
            processes = [_Process() for _ in range(count if self._waiting else 0)]
            self._serve(processes)
        except KeyboardInterrupt:
            self._stopped = "interrupted"
        finally:
            for process in processes:
                process.end()
        return self.results()

    def results(self) -> Results:
        left_out = self._stopped or "budget"
        ordered = [
            self._results.get(place) or _skipped(cell.scenario, left_out)
            for place, cell in enumerate(self._cells)
        ]
        seed = self._cells[0].scenario.seed if self._cells else 0
        return Results(seed=seed, elapsed_s=self.elapsed_s, folder=str(self._folder), results=tuple(ordered))

    def _serve(self, processes: list[_Process]) -> None:
        with DefaultSelector() as selector:
            for process in processes:
                selector.register(process.output, EVENT_READ, process)
                self._give(process)
            while any(process.job is not None for process in processes):
                for key, _ in selector.select(1.0):
                    self._listen(key.data, selector)
                for process in [p for p in processes if p.overdue]:
                    self._lost(process, f"the cell took longer than {CELL_TIMEOUT_S:g} s", selector)
                for process in [p for p in processes if p.job is None]:
                    self._give(process)  # what another one found may have to run again

    def _give(self, process: _Process) -> None:
        order = self._next()
        process.job = order
        if order is None:
            return
        place, job = order
        folder = self._folder / self._name(place, job)
        folder.mkdir(parents=True, exist_ok=True)
        process.send(Order(job.next_scenario, str(folder), self._preload))
        step = "starting" if job.purpose == "first" else job.purpose
        self._listener(Event("started", job.next_scenario, step))

    def _next(self) -> tuple[int, _Job] | None:
        if self._stopped is not None:
            return None
        over = self._budget_s is not None and self.elapsed_s > self._budget_s - self._reserve_s()
        if over:
            return None
        if self._waiting:
            return self._waiting.popleft()
        return self._again.popleft() if self._again else None

    def _reserve_s(self) -> float:
        """What the cell that is about to start will take, by what the others took."""
        taken = [result.elapsed_s for result in self._results.values() if result.elapsed_s]
        return sum(taken) / len(taken) if taken else 0.0

    def _listen(self, process: _Process, selector: DefaultSelector) -> None:
        for word in process.words():
            if word is None:
                self._lost(process, "the cell's own process died", selector)
                return
            assert process.job is not None
            _, job = process.job
            if isinstance(word, Step):
                self._listener(Event("step", job.next_scenario, word.name))
            elif isinstance(word, Done):
                self._finish(*process.job, word.result)
                self._give(process)

    def _lost(self, process: _Process, why: str, selector: DefaultSelector) -> None:
        selector.unregister(process.output)
        process.end()
        process.begin()
        selector.register(process.output, EVENT_READ, process)
        if process.job is not None:
            place, job = process.job
            verdict = Verdict(status="unknown", reason=why)
            self._finish(place, job, Result(scenario=job.next_scenario, verdict=verdict))
        self._give(process)

    # ---- confirming and shrinking

    def _finish(self, place: int, job: _Job, result: Result) -> None:
        if job.purpose == "first":
            job.first = result
            self._put(place, msgspec.structs.replace(result, folder=self._name(place, job)))
            self._listener(Event("ended", job.cell.scenario, result=result))
            if result.verdict.status == "violated":
                if self._fail_fast:
                    self._stopped = "--fail-fast: a cell before this one was violated"
                if self._confirm:
                    self._again.append((place, _Job(job.cell, "confirm", first=result)))
            return
        same = _same(job.first, result)
        job.again += 1
        job.seen += same
        if job.purpose == "shrink":
            if same:
                job.smallest = result.scenario
            self._continue_shrinking(place, job)
        elif job.again < CONFIRM_TIMES:
            self._again.append((place, job))
        else:
            self._put(place, msgspec.structs.replace(self._results[place], reproduced=(job.seen, job.again)))
            if job.seen == job.again:
                self._continue_shrinking(
                    place, replace(job, purpose="shrink", again=0, tries=_smaller(job.cell.scenario))
                )

    def _continue_shrinking(self, place: int, job: _Job) -> None:
        if job.smallest is not None:
            self._put(place, msgspec.structs.replace(self._results[place], smallest=job.smallest))
        if job.tries and job.again < SHRINK_TIMES:
            job.scenario = job.tries.popleft()
            self._again.append((place, job))

    def _put(self, place: int, result: Result) -> None:
        self._results[place] = result

    def _name(self, place: int, job: _Job) -> str:
        """A folder of its own for every run, also when the same scenario runs several times."""
        name = f"{place:03}-{job.cell.scenario.name}"
        return name if job.purpose == "first" else f"{name}.{job.purpose}-{job.again}"


def _same(first: Result | None, again: Result) -> bool:
    if first is None:
        return False
    names = {anomaly.name for anomaly in first.verdict.anomalies}
    return bool(names & {anomaly.name for anomaly in again.verdict.anomalies})


def _smaller(scenario: Scenario) -> deque[Scenario]:
    """Smaller schedules, the smallest last: a later one is tried whatever became of the earlier."""
    sizes = [(2, 1, 40), (2, 1, 15), (1, 1, 15), (2, 1, 6), (1, 1, 6), (1, 1, 3)]
    return deque(
        msgspec.structs.replace(
            scenario, writers=min(writers, scenario.writers), sessions=sessions, readers=0, ops_max=ops
        )
        for writers, sessions, ops in sizes
    )


def _skipped(scenario: Scenario, reason: str) -> Result:
    return Result(scenario=scenario, verdict=Verdict(status="skipped", reason=reason))
