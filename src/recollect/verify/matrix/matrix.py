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

from recollect import private
from recollect.verify.host import interrupts
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.cell_process import CELL_TIMEOUT_S, CellProcess, Done, Order, Step
from recollect.verify.matrix.results import Result, Results
from recollect.verify.matrix.selection import Cell
from recollect.verify.running.scenario import Scenario

CONFIRM_TIMES = 3
SHRINK_TIMES = 6
NAME_MAX = 180
"""Of a scenario, in characters of a folder's name; the number before it is what tells folders apart."""


@dataclass
class CellEvent:
    """Something to show: a cell started, took a step, or ended."""

    kind: str
    scenario: Scenario
    step: str = ""
    result: Result | None = None


CellListener = Callable[[CellEvent], None]


@dataclass
class _Trial:
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


_MatrixProcess = CellProcess[tuple[int, _Trial]]


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
        listener: CellListener = lambda event: None,
    ) -> None:
        self._folder = folder
        self._workers = workers
        self._budget_s = budget_s
        self._fail_fast = fail_fast
        self._confirm = confirm
        self._listener = listener
        self._started = time.monotonic()
        self._results: dict[int, Result] = {}
        self._waiting: deque[tuple[int, _Trial]] = deque()
        self._again: deque[tuple[int, _Trial]] = deque()
        for number, cell in enumerate(cells):
            if cell.skipped is not None:
                self._results[number] = _skipped(cell.scenario, cell.skipped)
            else:
                self._waiting.append((number, _Trial(cell)))
        self._cells = cells
        wanted = {name for _, trial in self._waiting for name in trial.cell.scenario.modules}
        self._preload = tuple(sorted(wanted))
        self._stopped: str | None = None
        """Why no further cell is begun."""

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def run(self) -> Results:
        """Runs all cells; interrupted, it returns what is known so far."""
        processes: list[_MatrixProcess] = []
        try:
            count = min(self._workers, max(1, len(self._waiting)))
            processes = [_MatrixProcess() for _ in range(count if self._waiting else 0)]
            self._serve(processes)
        except KeyboardInterrupt:
            self._stopped = "interrupted"
        finally:
            with interrupts.put_off():
                for process in processes:
                    process.end()
                self._remove_empty_folders()
        return self.results()

    def _remove_empty_folders(self) -> None:
        """Of cells that were ended before they had anything to keep."""
        for path in self._folder.iterdir():
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def results(self) -> Results:
        left_out = self._stopped or "budget"
        ordered = [
            self._results.get(number) or _skipped(cell.scenario, left_out)
            for number, cell in enumerate(self._cells)
        ]
        seed = self._cells[0].scenario.seed if self._cells else 0
        return Results(seed=seed, elapsed_s=self.elapsed_s, folder=str(self._folder), results=tuple(ordered))

    def _serve(self, processes: list[_MatrixProcess]) -> None:
        with DefaultSelector() as selector:
            for process in processes:
                selector.register(process.output, EVENT_READ, process)
                self._give(process)
            while any(process.task is not None for process in processes):
                for key, _ in selector.select(1.0):
                    self._listen(key.data, selector)
                for process in [p for p in processes if p.overdue]:
                    self._lost(process, f"the cell took longer than {CELL_TIMEOUT_S:g} s", selector)
                for process in [p for p in processes if p.task is None]:
                    self._give(process)  # what another one found may have to run again

    def _give(self, process: _MatrixProcess) -> None:
        order = self._next()
        process.task = order
        if order is None:
            return
        number, trial = order
        folder = self._folder / self._name(number, trial)
        private.artifact_folder(folder)
        first = trial.purpose == "first"
        process.send(Order(trial.next_scenario, str(folder), self._preload, judge_again=first))
        step = "starting" if first else trial.purpose
        self._listener(CellEvent("started", trial.next_scenario, step))

    def _next(self) -> tuple[int, _Trial] | None:
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

    def _listen(self, process: _MatrixProcess, selector: DefaultSelector) -> None:
        for word in process.words():
            if word is None:
                self._lost(process, "the cell's own process died", selector)
                return
            assert process.task is not None
            _, trial = process.task
            if isinstance(word, Step):
                self._listener(CellEvent("step", trial.next_scenario, word.name))
            elif isinstance(word, Done):
                self._finish(*process.task, word.result)
                self._give(process)

    def _lost(self, process: _MatrixProcess, why: str, selector: DefaultSelector) -> None:
        selector.unregister(process.output)
        process.end()
        process.begin()
        selector.register(process.output, EVENT_READ, process)
        if process.task is not None:
            number, trial = process.task
            verdict = Verdict(status="unknown", reason=why)
            self._finish(number, trial, Result(scenario=trial.next_scenario, verdict=verdict))
        self._give(process)

    # ---- confirming and shrinking

    def _finish(self, number: int, trial: _Trial, result: Result) -> None:
        if trial.purpose == "first":
            trial.first = result
            self._put(number, msgspec.structs.replace(result, folder=self._name(number, trial)))
            self._listener(CellEvent("ended", trial.cell.scenario, result=result))
            if result.verdict.status == "violated":
                if self._fail_fast:
                    self._stopped = "--fail-fast: a cell before this one was violated"
                if self._confirm:
                    self._again.append((number, _Trial(trial.cell, "confirm", first=result)))
            return
        same = _same(trial.first, result)
        trial.again += 1
        trial.seen += same
        if trial.purpose == "shrink":
            if same:
                trial.smallest = result.scenario
            self._continue_shrinking(number, trial)
        elif trial.again < CONFIRM_TIMES:
            self._again.append((number, trial))
        else:
            self._put(
                number, msgspec.structs.replace(self._results[number], reproduced=(trial.seen, trial.again))
            )
            if trial.seen == trial.again:
                self._continue_shrinking(
                    number, replace(trial, purpose="shrink", again=0, tries=_smaller(trial.cell.scenario))
                )

    def _continue_shrinking(self, number: int, trial: _Trial) -> None:
        if trial.smallest is not None:
            self._put(number, msgspec.structs.replace(self._results[number], smallest=trial.smallest))
        if trial.tries and trial.again < SHRINK_TIMES:
            trial.scenario = trial.tries.popleft()
            self._again.append((number, trial))

    def _put(self, number: int, result: Result) -> None:
        self._results[number] = result

    def _name(self, number: int, trial: _Trial) -> str:
        """A folder of its own for every run, also when the same scenario runs several times."""
        name = f"{number:03}-{trial.cell.scenario.name[:NAME_MAX]}"
        return name if trial.purpose == "first" else f"{name}.{trial.purpose}-{trial.again}"


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
