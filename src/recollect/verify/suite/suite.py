"""A test suite for one target: which cells it has, what each of them showed, and how to say so in a test report.

`Suite` is what a test class asks for, as data. `Bench` runs its cells for one test session. What a store can do is only
known once it has been opened, so a case of the suite (policy × fault) becomes one or more cells when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from recollect.verify.explore import orders_first
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.verdict import WORST_FIRST, Status, Verdict
from recollect.verify.matrix.cell_process import Order, TargetSeen
from recollect.verify.matrix.pool import CellPool
from recollect.verify.matrix.results import Require, Result, replay_command, too_bad, worse_than
from recollect.verify.matrix.selection import Cell, FaultCase, VerifyRequest, select
from recollect.verify.suite.finding_texts import FindingTexts, where
from recollect.verify.target.module_folders import from_here

CASES_AHEAD = 4
"""How many cases an idle process may run ahead of the tests."""


@dataclass(frozen=True)
class Suite:
    """One target and the cells to run on it; `require` is what its acknowledged messages must survive. With `strict`,
    no loss is accepted, even if it is documented, and no caller may be left unprotected."""

    name: str
    target: str
    request: VerifyRequest
    require: Require | None = None
    strict: bool = False


@dataclass(frozen=True)
class Judged:
    """The outcome of a test: passed, failed or skipped, and the text for it. `note` is for the summary."""

    outcome: str
    status: Status
    text: str
    note: str = ""
    replay: str = ""


@dataclass
class Bench:
    """Runs the cells of all suites of one test session; histories are kept below `folder`."""

    folder: Path
    pool: CellPool
    _seen: dict[Suite, TargetSeen] = field(default_factory=dict)
    _laid_out: dict[tuple[Suite, FaultCase], list[Cell]] = field(default_factory=dict)
    _told: dict[Suite, FindingTexts] = field(default_factory=dict)

    def judge(self, suite: Suite, case: FaultCase, ahead: Iterable[tuple[Suite, FaultCase]] = ()) -> Judged:
        """Runs the cells of one case; those of the cases ahead may start meanwhile."""
        if suite not in self._seen:
            self._seen[suite] = self.pool.look(suite.request, suite.target)
        refusal = self._seen[suite].refusal
        if refusal is not None:
            return Judged(
                "failed", "unknown", refusal if self._seen[suite].internal else f"unknown: {refusal}"
            )
        if case.variant == INTERLEAVINGS:
            return self._judge_orders(suite, case)
        cells = self._cells(suite, case)
        if not cells:
            return Judged("skipped", "skipped", f"{case.fault}: no workload fits what this store can do")
        later = [
            self._order(further, cell)
            for further, there in islice(ahead, CASES_AHEAD)
            if further in self._seen and further.request.path == suite.request.path
            if there.variant != INTERLEAVINGS
            for cell in self._cells(further, there)
            if cell.skipped is None
        ]
        results = []
        for number, cell in enumerate(cells):
            if cell.skipped is not None:
                verdict = Verdict(status="skipped", reason=cell.skipped)
                results.append(Result(scenario=cell.scenario, verdict=verdict))
                continue
            following = [self._order(suite, other) for other in cells[number + 1 :] if other.skipped is None]
            order = self._order(suite, cell)
            result = self.pool.run(order, [*following, *later])
            results.append(msgspec.structs.replace(result, folder=order.folder))
        return self._judged(suite, results)

    def _judge_orders(self, suite: Suite, case: FaultCase) -> Judged:
        """Not run in the pool: exploring has processes of its own."""
        scenario = orders_first.scenario_of(suite.request, suite.target, case.policy)
        folder = Path(self._order(suite, Cell(scenario)).folder)
        result = orders_first.exploring(orders_first.SECONDS_MAX)(scenario, folder)
        small = result.smallest_run
        if small is not None:
            small = msgspec.structs.replace(small, folder=str(folder))
        whole = msgspec.structs.replace(result, folder=str(folder), smallest_run=small)
        return self._judged(suite, [whole])

    def _judged(self, suite: Suite, results: Sequence[Result]) -> Judged:
        if any(result.verdict.status == "violated" for result in results):
            told = self._told.setdefault(suite, FindingTexts(self.pool))
            text, replay = told.text(results)
            in_doubt = [_unknown(result) for result in results if result.verdict.status == "unknown"]
            return Judged("failed", "violated", "\n\n".join((text, *in_doubt)), replay=replay)
        return judged(suite, results)

    def close(self) -> None:
        self.pool.close()

    def _cells(self, suite: Suite, case: FaultCase) -> list[Cell]:
        if (suite, case) not in self._laid_out:
            self._laid_out[suite, case] = self._lay_out(suite, case)
        cells, known = self._laid_out[suite, case], self._told.get(suite)
        if known is None:
            return cells
        return [
            msgspec.structs.replace(cell, scenario=known.apart_from_known(cell.scenario)) for cell in cells
        ]

    def _lay_out(self, suite: Suite, case: FaultCase) -> list[Cell]:
        one = msgspec.structs.replace(
            suite.request,
            targets=(suite.target,),
            policies=(case.policy,),
            faults=(case.fault,),
            variants=(case.variant,),
        )
        return select(one, {suite.target: frozenset(self._seen[suite].abilities)})

    def _order(self, suite: Suite, cell: Cell) -> Order:
        scenario = cell.scenario
        apart = "apart" if scenario.apart else ""
        parts = (scenario.policy, scenario.fault, scenario.variant, scenario.workload, apart)
        name = ".".join(part.replace("/", "_").replace(":", "_") for part in parts if part)
        return Order(scenario, str(self.folder / suite.name / name))


def judged(suite: Suite, results: Sequence[Result]) -> Judged:
    """The outcome of a case without a violated cell: the worst of its cells decides."""
    worst = min(results, key=lambda result: WORST_FIRST.index(result.verdict.status))
    status = worst.verdict.status
    if status == "skipped":
        return Judged("skipped", status, worst.verdict.reason or "")
    broken = [result for result in results if result.verdict.status == status]
    replay = replay_command(from_here(worst.folder)) if worst.folder else ""
    if status == "unknown":
        return Judged("failed", status, "\n\n".join(map(_unknown, broken)), replay=replay)
    if status in ("documented-loss", "exposed"):
        note = "\n".join(_loss(result) for result in broken)
        if any(too_bad(result, suite.require, suite.strict) for result in broken):
            refused = _refused(suite, broken)
            return Judged("failed", status, "\n".join((note, refused, where(worst), replay)), note, replay)
        return Judged("passed", status, "", note, replay)
    return Judged("passed", status, "")


def _refused(suite: Suite, broken: Sequence[Result]) -> str:
    """Why a suite fails on what a run without wishes accepts."""
    if suite.require is not None and any(worse_than(result, suite.require) for result in broken):
        return f"The engine documents this loss, but the suite requires {suite.require!r}."
    return f"This is {broken[0].verdict.status}, and the suite is strict."


def _unknown(result: Result) -> str:
    """An error of ours is no verdict, and is not called one."""
    notes = [f"note: {note}" for note in result.notes]
    reason = result.verdict.reason or "no reason given"
    return "\n".join(
        [
            reason if result.trouble == "internal" else f"unknown, nothing can be concluded: {reason}",
            *notes,
            where(result),
            replay_command(from_here(result.folder)),
        ]
    )


def _loss(result: Result) -> str:
    verdict = result.verdict
    if verdict.status == "exposed":
        return f"exposed: {verdict.reason or 'no reason given'}"
    told = f"{verdict.lost} of {verdict.acked} acknowledged messages {verdict.what_befell}{verdict.reach}"
    return f"{told}. Promise: {verdict.promise}"
