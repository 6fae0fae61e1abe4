"""A single history as a run of one cell: what the JSON says of it, whoever asks."""

import json
import shutil
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from recollect.cli import build
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.verdict import Status, Verdict
from recollect.verify.matrix.results import INTERRUPTED, Result, Results, Trouble, exit_code
from recollect.verify.report import terminal
from recollect.verify.report.one_history import main
from recollect.verify.running import scenario
from recollect.verify.running.scenario import Scenario
from tests.report.saved_runs import save_run

SCENARIO = Scenario(
    target="redis", engine="redis", policy="aof-always", fault="kill-engine", workload="turns"
)


def reported(path: Path) -> dict[str, Any]:
    arguments = ["report", str(path), "--json", "-"]
    done = CliRunner().invoke(build(arguments), arguments)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def analysed(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main([str(path), "--json", "-"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_both_commands_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_run(tmp_path / "cell", SCENARIO, lost=2)
    by_report = reported(tmp_path / "cell" / "history.jsonl")
    by_analyze = analysed(tmp_path / "cell" / "history.jsonl", capsys)
    for document in (by_report, by_analyze):
        del document["elapsed_s"]
    assert by_report == by_analyze
    assert by_report["cells"][0]["status"] == "violated"


def test_a_history_under_another_name_is_the_one_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_run(tmp_path / "cell", SCENARIO, lost=2)
    (tmp_path / "cell" / "history.jsonl").rename(tmp_path / "kept.jsonl")
    for document in (reported(tmp_path / "kept.jsonl"), analysed(tmp_path / "kept.jsonl", capsys)):
        (cell,) = document["cells"]
        assert cell["history"] == str(tmp_path / "kept.jsonl")
        assert cell["replay"] is None, "there is no scenario to run again"


def test_a_cells_own_history_can_be_replayed(tmp_path: Path) -> None:
    save_run(tmp_path / "cell", SCENARIO, lost=2)
    scenario.save(SCENARIO, tmp_path / "cell")
    (cell,) = reported(tmp_path / "cell" / "history.jsonl")["cells"]
    assert cell["replay"] == f"recollect replay {tmp_path / 'cell'}"
    shutil.copy(tmp_path / "cell" / "history.jsonl", tmp_path / "history.jsonl")
    (cell,) = reported(tmp_path / "history.jsonl")["cells"]
    assert cell["replay"] is None


@pytest.mark.parametrize("with_scenario", [False, True])
def test_the_history_of_an_order_of_events_is_rendered(tmp_path: Path, with_scenario: bool) -> None:
    """Its last read is made by nobody who has a letter."""
    shutil.copy(Path(__file__).parent / "an_order_of_events.jsonl", tmp_path / "history.jsonl")
    order = Scenario(
        target="memory:make_store",
        engine="redis",
        policy="aof-everysec",
        fault="none",
        workload=INTERLEAVINGS,
        how="threads",
        program="s | s",
        schedule="AABBB",
    )
    if with_scenario:
        scenario.save(order, tmp_path)
    page = tmp_path / "page.html"
    arguments = ["report", str(tmp_path), "--verbose", "--html", str(page)]
    done = CliRunner().invoke(build(arguments), arguments)
    assert done.exit_code == 1, done.output
    kind = "thread" if with_scenario else "client"
    for text in (f"{kind} A", f"{kind} B", "outside", f"2 {kind}s of one process: s | s", "\n  none "):
        assert text in done.output
    assert f"{kind} B" in page.read_text(encoding="utf-8")


def test_a_run_that_was_killed_is_reported_by_its_cells(tmp_path: Path) -> None:
    save_run(tmp_path / "run" / "000-whole", SCENARIO)
    save_run(tmp_path / "run" / "001-cut", SCENARIO)
    for name in ("000-whole", "001-cut", "002-begun"):
        (tmp_path / "run" / name).mkdir(exist_ok=True)
        scenario.save(SCENARIO, tmp_path / "run" / name)
    cut = tmp_path / "run" / "001-cut" / "history.jsonl"
    cut.write_bytes(b"".join(cut.read_bytes().splitlines(keepends=True)[:-40]))
    for folder in (tmp_path, tmp_path / "run"):
        cells = reported(folder)["cells"]
        assert [cell["status"] for cell in cells] == ["held", "unknown", "unknown"]
        assert cells[2]["reason"] == "it was stopped before its history began"


@pytest.mark.parametrize("lost", [0, 2], ids=["held", "violated"])
def test_without_its_history_a_saved_verdict_proves_nothing(tmp_path: Path, lost: int) -> None:
    results = Results(
        results=tuple(save_run(tmp_path / name, SCENARIO, lost=lost) for name in ("one", "other"))
    )
    results.save(tmp_path)
    before = [cell["status"] for cell in reported(tmp_path)["cells"]]
    assert before == ["violated" if lost else "held"] * 2
    (tmp_path / "other" / "history.jsonl").unlink()
    one, other = reported(tmp_path)["cells"]
    assert [one["status"], other["status"]] == [before[0], "unknown"]
    assert other["reason"] == (
        f"it was {before[1]}, and its history is not there to judge it again: {tmp_path / 'other' / 'history.jsonl'}"
    )


KINDS: dict[str, tuple[Status, Trouble | None]] = {
    "internal": ("unknown", "internal"),
    "violated": ("violated", None),
    "unopened": ("unknown", "unopened"),
    "unknown": ("unknown", None),
    "exposed": ("exposed", None),
    "documented-loss": ("documented-loss", None),
    "held": ("held", None),
}
CODES = {"internal": 4, "violated": 1, "unopened": 2, "unknown": 3}
"""In the order in which they count."""


@pytest.mark.parametrize(("reason", "code"), [(INTERRUPTED, 3), ("budget", 0), ("no such fault here", 0)])
def test_a_run_that_was_interrupted_proves_nothing(reason: str, code: int) -> None:
    held = Result(scenario=SCENARIO, verdict=Verdict(status="held"))
    left_out = Result(scenario=SCENARIO, verdict=Verdict(status="skipped", reason=reason))
    violated = Result(scenario=SCENARIO, verdict=Verdict(status="violated"))
    assert exit_code(Results(results=(held, left_out))) == code
    assert exit_code(Results(results=(held, left_out, violated))) == 1


def test_a_budget_that_ends_before_any_fault_proves_nothing() -> None:
    """Three cells held, and thirty-five were left out, among them those with several writers."""
    bare = msgspec.structs.replace(SCENARIO, fault="none")
    held, unseen = (
        Result(scenario=bare, verdict=Verdict(status="held")),
        Result(scenario=bare, verdict=Verdict(status="skipped", reason="budget")),
    )
    later = Result(scenario=SCENARIO, verdict=Verdict(status="skipped", reason="budget"))
    struck = Result(scenario=SCENARIO, verdict=Verdict(status="held"))
    says = "before any fault: what held proves nothing"
    for cells, code in (
        ((held, unseen, later), 3),
        ((held, held, later), 0),
        ((held, unseen, struck), 0),
    ):
        results = Results(results=cells)
        assert exit_code(results) == code
        console = Console(width=200, file=StringIO())
        terminal.show(console, results)
        assert isinstance(console.file, StringIO)
        assert (says in console.file.getvalue()) is (code == 3)


@pytest.mark.parametrize("strict", [False, True])
def test_of_several_exit_codes_the_first_in_the_order_counts(strict: bool) -> None:
    for size in range(1, len(KINDS) + 1):
        for kinds in combinations(KINDS, size):
            cells = [
                Result(scenario=SCENARIO, verdict=Verdict(status=KINDS[kind][0]), trouble=KINDS[kind][1])
                for kind in kinds
            ]
            failing = {"violated"} if strict and {"exposed", "documented-loss"} & set(kinds) else set()
            wanted = next((code for kind, code in CODES.items() if kind in {*kinds} | failing), 0)
            assert exit_code(Results(results=tuple(cells)), strict=strict) == wanted, kinds
