"""`--repeat` and `--for`: the cells of a run again and again, each time with the next seed.

The first round is an ordinary run. In the others nothing is confirmed or made smaller: how often a cell shows
something is the answer. A run that shows nothing new for its cell is counted, and its folder removed, so neither
memory nor disk grows with the number of rounds. Rounds run in batches, so that the processes that run the cells are
started once for many of them.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from recollect import private
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.matrix.findings import broken_of
from recollect.verify.matrix.matrix import CellListener, Matrix
from recollect.verify.matrix.rates import CellRate, Repeated
from recollect.verify.matrix.results import BUDGET, INTERRUPTED, Result, Results
from recollect.verify.matrix.selection import Cell
from recollect.verify.running.scenario import Scenario

BATCH_CELLS = 60
BATCH_ROUNDS_MAX = 20


class RunTally:
    """What every cell has shown so far, and the results that have something new to say."""

    def __init__(self, first: Results) -> None:
        self.results = list(first.results)
        self.rounds = 1
        self.last_seed = first.seed
        self._place = {result.scenario.name: place for place, result in enumerate(first.results)}
        self._runs: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._shown: dict[str, Counter[str]] = defaultdict(Counter)
        for result in first.results:
            self._count(result)

    def add(self, result: Result) -> bool:
        """Counts a run; True if it is kept, because its cell showed this for the first time."""
        before = result.scenario.name
        news = self._is_news(result)
        self._count(result)
        if news:
            place = self._place[before]
            if self.results[place].verdict.status == "skipped":
                self.results[place] = result
            else:
                self.results.append(result)
        return news

    def _count(self, result: Result) -> None:
        name, status = result.scenario.name, result.verdict.status
        if status == "skipped" or result.scenario.workload == INTERLEAVINGS:
            return
        self._unknown[name] += status == "unknown"
        self._runs[name] += status != "unknown"
        if together := _names(result):
            self._shown[name][together] += 1

    def _is_news(self, result: Result) -> bool:
        name, status = result.scenario.name, result.verdict.status
        if status == "skipped":
            return False
        if status == "unknown":
            return not self._unknown[name]
        if status == "violated":
            seen = {each for together in self._shown[name] for each in together.split(",")}
            return not set(_names(result).split(",")) <= seen
        return not self._runs[name] or self._is_worse(result)

    def _is_worse(self, result: Result) -> bool:
        """A first documented loss, or a first `exposed`, of a cell that has held so far; or the first that left a
        session in part."""
        mine = {_degree(each) for each in self.results if each.scenario.name == result.scenario.name}
        return result.verdict.status != "held" and _degree(result) not in mine

    @property
    def told(self) -> tuple[CellRate, ...]:
        return tuple(
            CellRate(
                name=name, runs=self._runs[name], shown=dict(self._shown[name]), unknown=self._unknown[name]
            )
            for name in self._place
            if self._runs[name] or self._unknown[name]
        )


def _degree(result: Result) -> tuple[str, bool]:
    return result.verdict.status, result.verdict.partly_lost_sessions > 0


def _names(result: Result) -> str:
    return ",".join(sorted({anomaly.name for anomaly in broken_of(result)}))


def repeat(
    first: Results,
    folder: Path,
    *,
    rounds: int | None = None,
    until_s: float | None = None,
    workers: int = 2,
    watch: Callable[[int], CellListener] = lambda cells: lambda event: None,
    after_batch: Callable[[RunTally], None] = lambda tally: None,
) -> Results:
    """The run with its further rounds: `rounds` in all, or as many as fit until the monotonic time `until_s`.

    `watch` gives a listener for a batch, by its number of cells.
    """
    tally = RunTally(first)
    for number, batch in enumerate(_batches(first, rounds), 2):
        left_s = None if until_s is None else until_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            break
        whole = _one_batch(batch, folder / f"batch-{number}", tally, workers, left_s, watch(len(batch)))
        after_batch(tally)
        if not whole:
            break
    repeated = Repeated(rounds=tally.rounds, seeds=(first.seed, tally.last_seed), cells=tally.told)
    return msgspec.structs.replace(first, results=tuple(tally.results), repeated=repeated)


def _batches(first: Results, rounds: int | None) -> Iterator[list[Cell]]:
    """The cells of the rounds after the first, several rounds at a time; without end if `rounds` is None."""
    again = [result.scenario for result in first.results if _can_run(result)]
    if not again:
        return
    at_once = max(1, min(BATCH_ROUNDS_MAX, BATCH_CELLS // len(again)))
    done = 1
    while rounds is None or done < rounds:
        now = at_once if rounds is None else min(at_once, rounds - done)
        yield [_with_seed(each, done + number) for number in range(now) for each in again]
        done += now


def _can_run(result: Result) -> bool:
    if result.scenario.workload == INTERLEAVINGS:
        return False  # every order was tried, or as many as there was time for
    return result.verdict.status != "skipped" or result.verdict.reason == BUDGET


def _with_seed(scenario: Scenario, round_: int) -> Cell:
    return Cell(msgspec.structs.replace(scenario, seed=scenario.seed + round_))


def _one_batch(
    cells: list[Cell],
    folder: Path,
    tally: RunTally,
    workers: int,
    left_s: float | None,
    listener: CellListener,
) -> bool:
    """False if it ended early: the time was over, or the user interrupted it."""
    private.artifact_folder(folder)
    batch = Matrix(
        cells, folder, workers=workers, budget_s=left_s, confirm=False, avoid=False, listener=listener
    ).run()
    kept = False
    for result in batch.results:
        mine = folder / result.folder
        if tally.add(msgspec.structs.replace(result, folder=f"{folder.name}/{result.folder}")):
            kept = True
        elif result.folder:
            shutil.rmtree(mine, ignore_errors=True)
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
    ran = {result.scenario.seed for result in batch.results if result.verdict.status != "skipped"}
    tally.rounds += len(ran)
    tally.last_seed = max({tally.last_seed, *ran})
    return not any(result.verdict.reason in (BUDGET, INTERRUPTED) for result in batch.results)
