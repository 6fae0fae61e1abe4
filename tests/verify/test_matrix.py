"""Which run comes next: phases, their share of the time, and what a known bug changes."""

from pathlib import Path

import msgspec
import pytest

from recollect.verify.judging.verdict import Anomaly, Verdict, WitnessEvents
from recollect.verify.matrix import cell
from recollect.verify.matrix.cell_process import LookAtTarget
from recollect.verify.matrix.matrix import FIRST_SHARE, LEAST_SHARE, CellEvent, Matrix
from recollect.verify.matrix.results import Result
from recollect.verify.matrix.selection import Cell, VerifyRequest
from recollect.verify.running.scenario import Scenario

BARE = Scenario(
    target="a:make", engine="redis", policy="rdb", fault="none", workload="turns", variant="several-writers"
)
KILL = msgspec.structs.replace(BARE, fault="kill-engine", variant="")
CROWD = msgspec.structs.replace(KILL, fault="concurrent-writers")


class Stepped(Matrix):
    """Without processes: the test says what becomes of each run."""

    def take(self) -> Scenario | None:
        trial = self._next()
        if trial is None:
            return None
        self._at_work.append(trial)
        return trial.scenario

    def end(self, *names: str) -> None:
        trial = self._at_work[0]
        anomalies = tuple(Anomaly(name, 1, True, WitnessEvents(), "gone") for name in names)
        verdict = Verdict(status="violated" if names else "held", acked=1, anomalies=anomalies)
        self._finish(trial, Result(scenario=trial.scenario, verdict=verdict))

    def late(self, share: float) -> None:
        assert self._budget_s is not None
        self._started -= share * self._budget_s


def test_what_needs_no_fault_is_looked_into_before_anything_else(tmp_path: Path) -> None:
    matrix = Stepped([Cell(KILL), Cell(CROWD), Cell(BARE)], tmp_path, budget_s=1000.0)
    assert matrix.take() == CROWD
    assert matrix.take() == BARE
    assert matrix.take() is None, "the phase is not over"
    matrix.end()
    matrix.end("lost-update")
    for _ in range(3):
        assert matrix.take() == BARE, "confirming"
        matrix.end("lost-update")
    sizes = []
    while (smaller := matrix.take()) is not None and smaller.fault == "none":
        sizes.append(smaller)
        matrix.end(*(["lost-update"] if smaller.writers > 1 else []))
    assert sizes
    assert smaller == msgspec.structs.replace(KILL, apart=True)
    matrix.end()
    assert matrix.take() is None
    result = matrix.results().results[2]
    assert result.reproduced == (3, 3)
    assert result.smallest_run is not None
    assert (result.smallest_run.scenario.writers, result.smallest_run.scenario.ops_max) == (2, 1)
    assert result.smallest_run.shown == (3, 3)
    assert result.shrunk == "seen in 3 of 3 runs of that size; nothing smaller shows it"


def test_a_cell_that_a_finding_hides_is_counted_as_over(tmp_path: Path) -> None:
    """Whoever shows the progress counts to the number of cells that could run."""
    forgot = msgspec.structs.replace(BARE, workload="forget", variant="one-writer")
    again = msgspec.structs.replace(KILL, workload="forget")
    ended: list[Result | None] = []

    def listener(event: CellEvent) -> None:
        if event.kind == "ended":
            ended.append(event.result)

    matrix = Stepped([Cell(forgot), Cell(again)], tmp_path, listener=listener, confirm=False)
    assert matrix.take() == forgot
    matrix.end("resurrected")
    assert matrix.take() is None
    assert [one and one.verdict.status for one in ended] == ["violated", "skipped"]


def test_a_size_that_showed_it_by_chance_says_how_often(tmp_path: Path) -> None:
    matrix = Stepped([Cell(BARE)], tmp_path)
    assert matrix.take() == BARE
    matrix.end("lost-update")
    for _ in range(3):
        matrix.take()
        matrix.end("lost-update")
    shown: set[Scenario] = set()
    runs = 0
    while (smaller := matrix.take()) is not None:
        runs += 1
        lucky = smaller.writers > 1 and smaller not in shown
        shown.add(smaller)
        matrix.end(*(["lost-update"] if lucky else []))
    assert runs > 3
    result = matrix.results().results[0]
    assert result.shrunk == "seen in 1 of 3 runs of that size; nothing smaller shows it"


def test_a_slow_first_phase_does_not_take_the_time_of_the_others(tmp_path: Path) -> None:
    more = msgspec.structs.replace(BARE, workload="mixed")
    matrix = Stepped([Cell(BARE), Cell(more), Cell(KILL)], tmp_path, budget_s=1000.0)
    assert matrix.take() == BARE
    matrix.late(FIRST_SHARE + 0.01)
    matrix.end()
    assert matrix.take() == KILL
    assert matrix.take() == more, "it comes last"


def test_what_only_a_fault_shows_is_confirmed_before_the_last_cells(tmp_path: Path) -> None:
    """A finding that nobody ran again is worth less than a cell more."""
    cut = msgspec.structs.replace(KILL, fault="cut")
    matrix = Stepped([Cell(BARE), Cell(KILL), Cell(CROWD), Cell(cut)], tmp_path, budget_s=1000.0)
    for scenario in (BARE, CROWD, KILL):
        assert matrix.take() == scenario
        matrix.end(*(["duplicate"] if scenario == KILL else []))
    matrix.late(1.01 - LEAST_SHARE)
    for _ in range(3):
        assert matrix.take() == KILL, "confirming"
        matrix.end("duplicate")
    while (smaller := matrix.take()) is not None and smaller.fault == KILL.fault:
        matrix.end()
    assert smaller == cut
    matrix.end("hole")
    assert matrix.take() == cut, "and so is what the last cell shows"


def test_what_the_budget_leaves_out_is_said(tmp_path: Path) -> None:
    matrix = Stepped([Cell(KILL)], tmp_path, budget_s=1000.0)
    matrix.late(1.1)
    assert matrix.take() is None
    assert matrix.results().results[0].verdict.reason == "budget"


def test_an_error_of_ours_while_looking_at_a_target_is_no_refusal_of_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(cell, "abilities_of", broken)
    seen = cell.look(LookAtTarget(VerifyRequest(targets=("app:make",)), "app:make"))
    assert seen.internal
    assert seen.refusal == "an error in recollect itself; please report it: KeyError: 'ours'"
