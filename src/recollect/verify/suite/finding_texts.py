"""The findings of a suite while its tests run: the first test that shows a bug reports it in full.

A test result cannot be taken back, so every test that shows a bug fails; but only the first one runs it again, makes
it smaller and describes it. The others name that test in one line.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from recollect.verify.matrix.avoiding import avoiding
from recollect.verify.matrix.cell_process import Order
from recollect.verify.matrix.findings import Finding, findings
from recollect.verify.matrix.investigation import Investigation
from recollect.verify.matrix.pool import CellPool
from recollect.verify.matrix.results import Result, Results, replay_command
from recollect.verify.report.finding_text import headline, told
from recollect.verify.running.scenario import Scenario
from recollect.verify.target.module_folders import from_here

INVESTIGATE_S = 10.0
"""Time for confirming one finding and making it smaller: a failing suite takes little longer than a passing one."""


class FindingTexts:
    """Takes the results of each test and makes the text for those that are violated."""

    def __init__(self, pool: CellPool) -> None:
        self._pool = pool
        self._known: list[Result] = []

    def apart_from_known(self, scenario: Scenario) -> Scenario:
        """Run so that what is known does not hide what the fault shows. A test that would only show it again runs as it
        is: it fails, too."""
        changed, hidden_by = avoiding(scenario, findings(self._results), self._results)
        return scenario if hidden_by is not None else changed

    def text(self, results: Sequence[Result]) -> tuple[str, str]:
        """What a test with these results says, and the command that runs its first finding again."""
        first = len(self._known)
        self._known += results
        for finding in self._findings():
            if min(finding.cells) >= first:
                lead = finding.cells[0]
                if self._known[lead].smallest_run is not None:
                    continue  # an order of events: it was replayed and made smaller when it was found
                self._known[lead] = self._investigated(self._known[lead], finding.name)
        mine = [finding for finding in self._findings() if max(finding.cells) >= first]
        texts = [self._told(finding, first) for finding in mine]
        return "\n\n".join(texts), mine[0].replay or "" if mine else ""

    def _findings(self) -> list[Finding]:
        return [
            msgspec.structs.replace(finding, folder=from_here(finding.folder))
            for finding in findings(self._results)
        ]

    @property
    def _results(self) -> Results:
        return Results(results=tuple(self._known))

    def _told(self, finding: Finding, first: int) -> str:
        if min(finding.cells) >= first:
            return told(finding, self._results, setting=where(self._known[finding.cells[0]]))
        earlier = self._known[min(finding.cells)].scenario.place
        here = self._known[next(place for place in finding.cells if place >= first)]
        lines = [f"{headline(finding)}: the same as in {earlier}, where it is told", where(here)]
        return "\n".join([*lines, replay_command(from_here(here.folder))])

    def _investigated(self, first: Result, name: str) -> Result:
        """Runs it again and makes it smaller, as `recollect verify` does."""
        began_s = time.monotonic()
        investigation = Investigation(0, first, name, INVESTIGATE_S)
        while (scenario := investigation.next(time.monotonic() - began_s)) is not None:
            folder = f"{first.folder}.{investigation.name_of_next}"
            result = self._pool.run(Order(scenario, folder, judge_again=False))
            investigation.heard(scenario, result, Path(folder), time.monotonic() - began_s)
        known = investigation.told(first)
        if known.smallest_run is None:
            return known
        beside = str(Path(first.folder).with_name(known.smallest_run.folder))
        return msgspec.structs.replace(
            known, smallest_run=msgspec.structs.replace(known.smallest_run, folder=beside)
        )


def where(result: Result) -> str:
    scenario = result.scenario
    version = f" {result.engine_version}" if result.engine_version else ""
    given = f", {result.given}" if result.given else ""
    return (
        f"on {scenario.engine_name}{version}, policy {scenario.policy}, fault {scenario.fault}"
        f"{f' {scenario.variant}' if scenario.variant else ''}, workload {scenario.workload}{given}, "
        f"seed {scenario.seed}"
    )
