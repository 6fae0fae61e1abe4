"""A history that was cut between two lines looks whole; without the end that it announces, nothing in it is `held`."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from recollect import exit_codes
from recollect.cli import build
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History
from recollect.verify.judging.op import HistoryHeader
from recollect.verify.matrix import judged_again
from recollect.verify.matrix.results import Results
from recollect.verify.running.scenario import Scenario
from tests.report.saved_runs import save_run

SCENARIO = Scenario(
    target="redis", engine="redis", policy="aof-always", fault="kill-engine", workload="turns"
)
WITHOUT_ITS_END = "the history ends in the middle"


def save(folder: Path, *, lost: int = 0) -> Path:
    """A run of one cell; returns its history."""
    result = save_run(folder / "cell", SCENARIO, lost=lost)
    Results(seed=1, elapsed_s=1.0, folder=str(folder), results=(result,)).save(folder)
    return folder / "cell" / "history.jsonl"


def cut(history: Path, share: float) -> Path:
    lines = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join(lines[: int(len(lines) * share)]))
    return history


def report(*runs: Path) -> tuple[int, list[dict[str, Any]]]:
    arguments = ["report", *map(str, runs), "--json", "-"]
    done = CliRunner().invoke(build(arguments), arguments)
    return done.exit_code, json.loads(done.stdout)["cells"]


@pytest.mark.parametrize("share", [0.8, 0.95, 0.999])
def test_what_held_as_a_whole_is_unknown_when_it_was_cut(tmp_path: Path, share: float) -> None:
    history = save(tmp_path)
    assert [cell["status"] for cell in report(history)[1]] == ["held"]
    cut(history, share)
    for named in (history, tmp_path):
        code, (cell,) = report(named)
        assert (code, cell["status"]) == (exit_codes.INCONCLUSIVE, "unknown"), cell
        assert cell["reason"].startswith(WITHOUT_ITS_END)


def test_a_cut_shard_is_not_covered_up_by_the_others(tmp_path: Path) -> None:
    save(tmp_path / "one")
    cut(save(tmp_path / "two"), 0.8)
    for named in ((tmp_path,), (tmp_path / "one", tmp_path / "two")):
        code, cells = report(*named)
        assert (code, [cell["status"] for cell in cells]) == (
            exit_codes.INCONCLUSIVE,
            ["held", "unknown"],
        )


def test_a_fresh_process_does_not_agree_with_what_was_judged_before_the_cut(tmp_path: Path) -> None:
    history = save(tmp_path, lost=2)
    verdict = analyze(History(history))
    assert verdict.status == "violated"
    told = judged_again.told(verdict, cut(history, 0.3))
    assert told.status == "unknown"
    assert "judged again in a fresh one" in (told.reason or "")


def test_what_the_rest_proves_stays_violated(tmp_path: Path) -> None:
    code, (cell,) = report(cut(save(tmp_path, lost=2), 0.95))
    assert (code, cell["status"]) == (exit_codes.VIOLATED, "violated")


def test_a_history_of_a_release_without_ends_is_read_as_before(tmp_path: Path) -> None:
    history = save(tmp_path)
    lines = history.read_bytes().splitlines(keepends=True)[:-1]
    header = msgspec.json.decode(lines[0])
    assert header.pop("ends") is True
    history.write_bytes(b"".join([msgspec.json.encode(header) + b"\n", *lines[1:]]))
    assert History(history).header == msgspec.convert(header, HistoryHeader)
    assert [cell["status"] for cell in report(history)[1]] == ["held"]
