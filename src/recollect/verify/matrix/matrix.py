"""Many cells: run side by side, within the budget, in phases; each finding is confirmed and made smaller.

Orders of events come first, where the caller can explore them: they are the cheapest way to a smallest example. The
next phase has the cells without a fault. What shows there is confirmed and made smaller before anything else runs, and
the cells of the last phase avoid it (`avoiding`), so that each says something new. Cells run in processes of their own
(`recollect.verify.matrix.cell`), so a crash takes only one cell with it. Progress is sent as events to a listener: the
terminal, a test, or nobody.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import msgspec

from recollect import private
from recollect.verify.host import interrupts
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.avoiding import avoiding
from recollect.verify.matrix.cell_process import CellProcess, Done, Order, Step
from recollect.verify.matrix.findings import NO_FAULT, Finding, findings, renumbered
from recollect.verify.matrix.investigation import Investigation
from recollect.verify.matrix.results import BUDGET, INTERRUPTED, Result, Results
from recollect.verify.matrix.same_setting import ran_before
from recollect.verify.matrix.selection import Cell
from recollect.verify.running.scenario import Scenario

LEAST_SHARE = 0.2
"""The share of the budget that is kept in each phase for confirming what it found and making it smaller, however long
the cells took: understanding one bug is worth more than a few cells."""

NAME_MAX = 180
"""How many characters of a scenario's name a folder's name may have; the number in front makes it unique."""

FIRST_SHARE = 0.4
"""The share of the budget for the first phase, including its investigations."""


@dataclass
class CellEvent:
    """Something to show: a cell `started`, took a `step` or `ended`; or it is run `again`, and that run has `left`."""

    kind: str
    scenario: Scenario
    step: str = ""
    result: Result | None = None


CellListener = Callable[[CellEvent], None]
ExploreOrders = Callable[[Scenario, Path], Result]
"""Explores the orders of events of one target, and leaves something to replay in the folder."""


@dataclass
class _Trial:
    """A run that is waiting or under way: a cell's first, or one of its investigation."""

    number: int
    scenario: Scenario
    folder: str
    investigation: Investigation | None = None


_MatrixProcess = CellProcess[_Trial]


class Matrix:
    def __init__(
        self,
        cells: Sequence[Cell],
        folder: Path,
        *,
        workers: int = 2,
        budget_s: float | None = None,
        fail_fast: bool = False,
        confirm: bool = True,
        listener: CellListener = lambda event: None,
        explore_orders: ExploreOrders | None = None,
        avoid: bool = True,
        processes: Sequence[CellProcess[Any]] = (),
    ) -> None:
        """Cells with the workload `interleavings` are run by `explore_orders`, before all others. Without `avoid`
        every cell runs exactly as it is given, whatever others show. `processes` are warm ones to begin with."""
        self._processes: list[_MatrixProcess] = list(processes)
        self._folder = folder
        self._workers = workers
        self._budget_s = budget_s
        self._fail_fast = fail_fast
        self._confirm = confirm
        self._listener = listener
        self._explore_orders = explore_orders
        self._avoid = avoid
        self._started = time.monotonic()
        self._cells = list(cells)
        self._results: dict[int, Result] = {
            number: _skipped(cell.scenario, cell.skipped)
            for number, cell in enumerate(cells)
            if cell.skipped is not None
        }
        self._orders = [
            number for number, cell in enumerate(cells) if cell.scenario.workload == INTERLEAVINGS
        ]
        self._phases = self._in_phases()
        self._waiting: deque[_Trial] = deque()
        self._investigations: dict[int, Investigation] = {}
        """By the number of the finding's clearest cell."""
        self._looked = False
        """Whether the findings of this phase were looked at."""
        self._at_work: list[_Trial] = []
        wanted = {name for cell in cells if cell.skipped is None for name in cell.scenario.modules}
        self._preload = tuple(sorted(wanted))
        self._stopped: str | None = None
        """Why no more cells are started, if so."""

    def _in_phases(self) -> deque[list[int]]:
        """Numbers of cells, without those that `explore_orders` runs first."""
        left = [
            number
            for number in range(len(self._cells))
            if number not in self._results and number not in self._orders
        ]
        if not self._avoid:
            return deque([left] if left else [])
        bare = [number for number in left if self._cells[number].scenario.fault in NO_FAULT]
        rest = [number for number in left if self._cells[number].scenario.fault not in NO_FAULT]
        return deque(phase for phase in (bare, rest) if phase)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def run(self) -> Results:
        """Runs all cells; if interrupted, returns what is known so far."""
        try:
            self._try_orders()
            wanted = min(self._workers, sum(map(len, self._phases)))
            while len(self._processes) < wanted:
                self._processes.append(_MatrixProcess())
            self._serve(self._processes[:wanted])
        except KeyboardInterrupt:
            self._stopped = INTERRUPTED
        finally:
            with interrupts.put_off():
                for process in self._processes:
                    process.end()
                self._remove_empty_folders()
        return renumbered(self.results())

    def _remove_empty_folders(self) -> None:
        """Removes the folders of cells that ended before they wrote anything."""
        for path in self._folder.iterdir():
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def results(self) -> Results:
        left_out = self._stopped or BUDGET
        ordered = [
            self._results.get(number) or _skipped(cell.scenario, left_out)
            for number, cell in enumerate(self._cells)
        ]
        seed = self._cells[0].scenario.seed if self._cells else 0
        return Results(seed=seed, elapsed_s=self.elapsed_s, folder=str(self._folder), results=tuple(ordered))

    def _try_orders(self) -> None:
        for number in self._orders:
            if self._explore_orders is None or self._stopped is not None:
                return
            scenario = self._cells[number].scenario
            folder = self._folder / _folder_name(number, scenario)
            self._listener(CellEvent("started", scenario, "trying orders of events"))
            result = self._explore_orders(scenario, folder)
            self._results[number] = result
            self._listener(CellEvent("ended", scenario, result=result))
            self._stop_if_violated(result)

    def _serve(self, processes: list[_MatrixProcess]) -> None:
        with DefaultSelector() as selector:
            for process in processes:
                selector.register(process.output, EVENT_READ, process)
                self._give(process)
            while any(process.task is not None for process in processes):
                for key, _ in selector.select(1.0):
                    self._listen(key.data, selector)
                for process in [p for p in processes if p.overdue]:
                    self._lost(process, f"the cell took longer than {process.waited_s:.0f} s", selector)
                for process in [p for p in processes if p.task is None]:
                    self._give(process)  # a finding of another process may have to run again

    def _give(self, process: _MatrixProcess) -> None:
        trial = process.task = self._next()
        if trial is None:
            return
        self._at_work.append(trial)
        folder = self._folder / trial.folder
        private.artifact_folder(folder)
        first = trial.investigation is None
        process.send(Order(trial.scenario, str(folder), self._preload, judge_again=first))
        kind, step = (
            ("started", "starting") if trial.investigation is None else ("again", trial.investigation.step)
        )
        self._listener(CellEvent(kind, self._cells[trial.number].scenario, step))

    # ---- what comes next

    def _next(self) -> _Trial | None:
        """The next run; None if there is none, or none until others have ended."""
        while self._stopped is None and not self._over:
            self._put_off()
            if (urgent := self._before_the_last_cells()) is not None:
                return urgent
            if self._waiting:
                trial = self._waiting.popleft()
                same = ran_before(trial.scenario, self._results.values()) if self._avoid else None
                if same is None:
                    return trial
                self._leave_out(trial.number, _skipped(trial.scenario, same))
                continue
            if any(trial.investigation is None for trial in self._at_work):
                return None  # the phase is not over
            if (further := self._next_of_investigations()) is not None or self._at_work:
                return further
            if not self._begin_phase():
                return None
        return None

    def _put_off(self) -> None:
        """On a slow machine the first phase must not use up everybody's time: what is left of it when its share is over
        runs last."""
        if self._phases and self._budget_s is not None and self.elapsed_s > FIRST_SHARE * self._budget_s:
            self._phases[-1].extend(trial.number for trial in self._waiting)
            self._waiting.clear()

    @property
    def _over(self) -> bool:
        return self._budget_s is not None and self.elapsed_s > self._budget_s - self._reserve_s()

    def _reserve_s(self) -> float:
        """How long the next cell will probably take: the average so far."""
        taken = [
            result.elapsed_s
            for number, result in self._results.items()
            if result.elapsed_s and number not in self._orders
        ]
        return sum(taken) / len(taken) if taken else 0.0

    def _begin_phase(self) -> bool:
        if not self._phases:
            return False
        known = self.results()
        found = findings(known) if self._avoid else ()
        for number in self._phases.popleft():
            scenario, hidden_by = avoiding(self._cells[number].scenario, found, known)
            if hidden_by is not None:
                lead = known.results[hidden_by.cells[0]]
                hidden = _skipped(scenario, f"hidden by finding {hidden_by.number}")
                self._leave_out(number, msgspec.structs.replace(hidden, hidden_by=lead.folder))
            else:
                self._cells[number] = Cell(scenario)
                self._waiting.append(_Trial(number, scenario, _folder_name(number, scenario)))
        self._looked = False
        return True

    def _leave_out(self, number: int, result: Result) -> None:
        """A cell that could run, but would show nothing: it is over, too, for whoever counts."""
        self._results[number] = result
        self._listener(CellEvent("ended", result.scenario, result=result))

    def _next_of_investigations(self) -> _Trial | None:
        """The next run for a finding whose clearest cell is not fully investigated yet."""
        if not self._confirm:
            return None
        if not self._looked:
            self._looked = True
            self._look()
        for investigation in self._investigations.values():
            if (scenario := investigation.next(self.elapsed_s)) is not None:
                name = f"{investigation.folder}.{investigation.name_of_next}"
                return _Trial(investigation.number, scenario, name, investigation)
        return None

    def _before_the_last_cells(self) -> _Trial | None:
        """When the time of the last phase is nearly over, what it has found goes before the cells that are left."""
        late_s = None if self._budget_s is None else (1.0 - LEAST_SHARE) * self._budget_s
        if self._phases or not self._confirm or late_s is None or self.elapsed_s < late_s:
            return None
        self._looked = self._looked and not self._not_looked_into()
        return self._next_of_investigations()

    def _not_looked_into(self) -> list[Finding]:
        return [
            finding
            for finding in findings(self.results())
            if not any(number in self._investigations for number in finding.cells)
            and finding.cells[0] not in self._orders  # it was replayed and made smaller when it was found
        ]

    def _look(self) -> None:
        known, new = self.results(), self._not_looked_into()
        left_s = None if self._budget_s is None else self._share_s() - self.elapsed_s
        if left_s is not None and self._phases:
            left_s = max(left_s, LEAST_SHARE * (self._budget_s or 0.0))
        for finding in new:
            number = finding.cells[0]
            each_s = None if left_s is None else max(0.0, left_s) / len(new)
            self._investigations[number] = Investigation(number, known.results[number], finding.name, each_s)

    def _share_s(self) -> float:
        """When the investigations of this phase have to end."""
        assert self._budget_s is not None
        return self._budget_s * (FIRST_SHARE if self._phases else 1.0)

    # ---- what the processes say

    def _listen(self, process: _MatrixProcess, selector: DefaultSelector) -> None:
        for word in process.words():
            if word is None:
                self._lost(process, "the cell's own process died", selector)
                return
            assert process.task is not None
            if isinstance(word, Step) and process.task.investigation is None:
                self._listener(CellEvent("step", self._cells[process.task.number].scenario, word.name))
            elif isinstance(word, Done):
                self._finish(process.task, word.result)
                self._give(process)

    def _lost(self, process: _MatrixProcess, why: str, selector: DefaultSelector) -> None:
        selector.unregister(process.output)
        process.end()
        process.begin()
        selector.register(process.output, EVENT_READ, process)
        if process.task is not None:
            verdict = Verdict(status="unknown", reason=why)
            self._finish(process.task, Result(scenario=process.task.scenario, verdict=verdict))
        self._give(process)

    def _finish(self, trial: _Trial, result: Result) -> None:
        self._at_work.remove(trial)
        if trial.investigation is not None:
            trial.investigation.heard(trial.scenario, result, self._folder / trial.folder, self.elapsed_s)
            self._results[trial.number] = trial.investigation.told(self._results[trial.number])
            self._listener(CellEvent("left", self._cells[trial.number].scenario))
            return
        self._results[trial.number] = msgspec.structs.replace(result, folder=trial.folder)
        self._listener(CellEvent("ended", trial.scenario, result=result))
        self._stop_if_violated(result)

    def _stop_if_violated(self, result: Result) -> None:
        if result.verdict.status == "violated" and self._fail_fast:
            self._stopped = "--fail-fast: an earlier cell was violated"


def _folder_name(number: int, scenario: Scenario) -> str:
    return f"{number:03}-{scenario.name[:NAME_MAX]}"


def _skipped(scenario: Scenario, reason: str) -> Result:
    return Result(scenario=scenario, verdict=Verdict(status="skipped", reason=reason))
