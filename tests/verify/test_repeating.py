"""`--repeat` and `--for`: how often, with what confidence, and what is kept of it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import build
from recollect.verify.judging.verdict import Anomaly, Verdict, WitnessEvents
from recollect.verify.matrix import repeating
from recollect.verify.matrix.findings import findings, rate_of_finding
from recollect.verify.matrix.rates import highest_unseen, rate
from recollect.verify.matrix.repeating import RunTally, repeat
from recollect.verify.matrix.results import Result, Results
from recollect.verify.matrix.selection import Cell
from recollect.verify.report.finding_text import seen_in
from recollect.verify.running.scenario import Scenario


def cell(fault: str = "kill-engine", seed: int = 1) -> Scenario:
    return Scenario(target="t:f", engine="redis", policy="aof-always", fault=fault, seed=seed)


def shows(scenario: Scenario, *names: str, status: str | None = None) -> Result:
    anomalies = tuple(Anomaly(name, 1, True, WitnessEvents(), f"a {name}") for name in names)
    verdict = Verdict(status=status or ("violated" if names else "held"), anomalies=anomalies)  # type: ignore[arg-type]
    return Result(scenario=scenario, verdict=verdict)


@pytest.mark.parametrize(
    ("shown", "runs", "low", "high"),
    # Wilson's interval as published tables have it.
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (1, 100, 0.0018, 0.0545)],
)
def test_the_interval_is_wilsons(shown: int, runs: int, low: float, high: float) -> None:
    found = rate(shown, runs)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(("shown", "runs"), [(0, 0), (2, 1), (-1, 3)])
def test_no_rate_of_what_cannot_be(shown: int, runs: int) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        rate(shown, runs)


@pytest.mark.parametrize("runs", [1, 3, 6, 60])
def test_clean_runs_leave_no_more_than_they_rule_out(runs: int) -> None:
    """Of something that shows in this share of runs, so many clean ones have a chance of 5 %."""
    assert (1 - highest_unseen(runs)) ** runs == pytest.approx(0.05)


class ScriptedMatrix:
    """Stands for the runs themselves: what each cell shows is decided by its seed."""

    ran: list[int]
    ends_after: float = float("inf")
    """The last seed that there is time for."""

    def __init__(self, cells: list[Cell], folder: Path, **options: object) -> None:
        assert options["confirm"] is False
        assert options["avoid"] is False
        self.cells, self.folder = cells, folder

    def run(self) -> Results:
        results = []
        for number, one in enumerate(self.cells):
            seed = one.scenario.seed
            type(self).ran.append(seed)
            name = f"{number:03}"
            (self.folder / name).mkdir()
            if seed > self.ends_after:
                found = Result(scenario=one.scenario, verdict=Verdict(status="skipped", reason="budget"))
            elif seed % 10 == 3:
                found = shows(one.scenario, "lost-tail")
            elif seed == 17:
                found = shows(one.scenario, "hole", "lost-tail")
            else:
                found = shows(one.scenario, status="unknown") if seed == 25 else shows(one.scenario)
            results.append(Result(scenario=one.scenario, verdict=found.verdict, folder=name))
        return Results(seed=1, results=tuple(results))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedMatrix]:
    ScriptedMatrix.ran = []
    monkeypatch.setattr(ScriptedMatrix, "ends_after", float("inf"))
    monkeypatch.setattr(repeating, "Matrix", ScriptedMatrix)
    return ScriptedMatrix


def test_every_run_is_counted_and_only_news_is_kept(scripted: type[ScriptedMatrix], tmp_path: Path) -> None:
    first = Results(seed=1, folder=str(tmp_path), results=(shows(cell()),))
    told = repeat(first, tmp_path, rounds=40)
    assert scripted.ran == list(range(2, 41))
    assert told.repeated is not None
    assert (told.repeated.rounds, told.repeated.runs, told.repeated.seeds) == (40, 40, (1, 40))
    (tally,) = told.repeated.cells
    assert (tally.runs, tally.unknown) == (39, 1)
    assert tally.shown == {"lost-tail": 4, "hole,lost-tail": 1}
    # The first run, the first lost tail, the first hole, the one that concluded nothing.
    assert [result.scenario.seed for result in told.results] == [1, 3, 17, 25]
    kept = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/*"))
    assert [str(path) for path in kept] == [result.folder for result in told.results[1:]]


def test_a_finding_has_its_rate(scripted: type[ScriptedMatrix], tmp_path: Path) -> None:
    first = Results(seed=1, folder=str(tmp_path), results=(shows(cell()), shows(cell("restart"))))
    told = repeat(first, tmp_path, rounds=20)
    by_name = {found.name: rate_of_finding(found, told) for found in findings(told)}
    assert {name: (found.shown, found.runs) for name, found in by_name.items() if found} == {
        "lost-tail": (6, 40)
    } or by_name.keys() == {"lost-tail", "hole"}
    assert "% confidence)" in seen_in(findings(told)[0], told)


def test_what_the_budget_left_out_runs_in_a_later_round(
    scripted: type[ScriptedMatrix], tmp_path: Path
) -> None:
    skipped = Result(scenario=cell(), verdict=Verdict(status="skipped", reason="budget"))
    never = Result(scenario=cell("pause"), verdict=Verdict(status="skipped", reason="no server"))
    told = repeat(Results(seed=1, results=(skipped, never)), tmp_path, rounds=2)
    assert [result.verdict.status for result in told.results] == ["held", "skipped"]


def test_time_that_is_up_ends_it(scripted: type[ScriptedMatrix], tmp_path: Path) -> None:
    told = repeat(Results(seed=1, results=(shows(cell()),)), tmp_path, until_s=0.0)
    assert scripted.ran == []
    assert told.repeated is not None
    assert told.repeated.rounds == 1


def test_seeds_of_a_batch_that_time_cut_short_are_told(
    scripted: type[ScriptedMatrix], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripted, "ends_after", 3)
    told = repeat(Results(seed=1, results=(shows(cell()),)), tmp_path, until_s=time.monotonic() + 60)
    assert told.repeated is not None
    assert (told.repeated.rounds, told.repeated.seeds) == (3, (1, 3))


def test_a_first_session_in_part_is_news() -> None:
    whole = Verdict(status="documented-loss")
    tally = RunTally(Results(results=(Result(scenario=cell(), verdict=whole),)))
    assert not tally.add(Result(scenario=cell(seed=2), verdict=whole))
    partly = Verdict(status="documented-loss", partly_lost_sessions=1)
    assert tally.add(Result(scenario=cell(seed=3), verdict=partly))
    assert not tally.add(Result(scenario=cell(seed=4), verdict=partly))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--for", "10m", "--repeat", "3"], "--for 10m and --repeat exclude each other"),
        (["--for", "10m", "--budget", "5s"], "--for 10m and --budget exclude each other"),
        (["--for", "soon"], "--for 'soon'"),
        (["--budget", "little"], "--budget 'little'"),
        (["--retain", "long"], "--retain 'long'"),
        (["--repeat", "0"], "--repeat"),
        (["--sessions", "0"], "--sessions"),
        (["--messages-per-session", "x"], "--messages-per-session"),
        (
            ["--sessions", "1000000", "--messages-per-session", "1000"],
            "--sessions 1000000 with --messages-per-session 1000",
        ),
    ],
)
def test_bad_input_is_exit_code_2_and_named(words: list[str], says: str) -> None:
    words = ["verify", "redis", *words]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == 2
    assert says in " ".join(done.output.replace("│", " ").split())


def test_real_rounds_fill_the_sessions(tmp_path: Path) -> None:
    """Two rounds on a real engine: the sessions have what was asked for, and the rounds are in the document."""
    file = tmp_path / "told.json"
    words = ["verify", "sqlite", "--policy", "wal-full", "--fault", "restart", "--workload", "turns"]
    words += ["--repeat", "2", "--sessions", "7", "--messages-per-session", "30", "--seed", "5"]
    words += ["--out", str(tmp_path / "out"), "--json", str(file)]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == 0, done.output
    told = json.loads(file.read_text())
    assert told["repeated"]["rounds"] == 2
    assert told["repeated"]["cells"] == [
        {"name": "sqlite.sqlite.wal-full.restart.turns", "runs": 2, "shown": {}, "unknown": 0}
    ]
    (kept,) = told["cells"]
    assert kept["kept"] >= 7 * 30
    assert "2 rounds, 2 runs (seeds 5 to 6)" in done.output
