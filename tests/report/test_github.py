"""What GitHub Actions shows: a line of the store for each finding, and a summary that nothing in a run can break."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from recollect.verify.judging.steps import StepTaken
from recollect.verify.matrix import baseline
from recollect.verify.matrix.findings import Finding, findings
from recollect.verify.matrix.results import Results
from recollect.verify.report import github
from tests.report.planned_cells import cell, shrunk
from tests.report.saved_runs import save_matrix
from tests.report.test_baseline import known_of

STORE = "import json\n\n\nclass Memory:\n    pass\n\n\ndef make(endpoint):\n    return Memory()\n"


def found(target: str = "shop.memory:make", *steps: str, sentence: str = "m1 is gone.") -> Finding:
    results = Results(seed=1, results=(shrunk(),))
    taken = tuple(StepTaken(0, step) for step in steps)
    return msgspec.structs.replace(
        findings(results)[0], target=target, steps=taken, sentence=sentence, folder="run"
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "src" / "shop" / "memory.py").write_text(STORE)
    return tmp_path


def test_a_finding_is_on_the_line_of_the_factory_or_of_the_last_step(checkout: Path) -> None:
    told = github._annotation(found(), checkout)
    assert ",file=src/shop/memory.py,line=8::m1 is gone. recollect replay run" in told
    assert told.startswith("::error title=")
    told = github._annotation(
        found("shop.memory:make", "save", "memory.py:5", "→ ok", "other.py:9"), checkout
    )
    assert ",line=5::" in told


@pytest.mark.parametrize("target", ["redis", "elsewhere:make", "shop.memory", "..:make"])
def test_a_target_that_is_no_file_here_has_no_line(checkout: Path, target: str) -> None:
    assert "file=" not in github._annotation(found(target), checkout)


def test_a_store_that_cannot_be_parsed_is_annotated_at_its_top(checkout: Path) -> None:
    (checkout / "src" / "shop" / "memory.py").write_bytes(b"def (\x00")
    assert ",line=1::" in github._annotation(found(), checkout)


def test_nothing_in_a_run_ends_the_annotation_or_the_summary(checkout: Path) -> None:
    hostile = "gone\n::stop-commands::x\r% ```\n# heading, a: b"
    told = github._annotation(found(sentence=hostile), checkout)
    assert "\n" not in told
    assert "\r" not in told
    assert "%25" in told
    one = shrunk()
    anomaly = msgspec.structs.replace(one.verdict.anomalies[0], sentence=hostile)
    smallest = one.smallest_run
    assert smallest is not None
    nasty = msgspec.structs.replace(
        one,
        verdict=msgspec.structs.replace(one.verdict, anomalies=(anomaly,)),
        smallest_run=msgspec.structs.replace(smallest, anomaly=anomaly),
    )
    told = github.summary(Results(seed=1, results=(nasty,)))
    assert "````text" in told
    assert told.count("````") == 2


def test_known_findings_are_not_annotated(checkout: Path, tmp_path: Path) -> None:
    results = baseline.compared(Results(seed=1, results=(shrunk(),)), known_of(tmp_path, shrunk()))
    assert github.error_lines(results, checkout) == []
    assert "(known)" in github.summary(results)
    assert "no findings" in github.summary(Results(seed=1, results=(cell("kill-engine", status="held"),)))


@pytest.mark.parametrize("on_github", [True, False])
def test_the_commands_tell_github_only_where_they_run_there(tmp_path: Path, on_github: bool) -> None:
    save_matrix(tmp_path / "run", 24, steps=80)
    summary = tmp_path / "summary.md"
    there = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)} if on_github else {}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    done = subprocess.run(
        [sys.executable, "-m", "recollect", "report", str(tmp_path / "run")],
        env={**plain, **there},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert ("::error title=" in done.stdout) == on_github
    assert summary.exists() == on_github
    if on_github:
        assert "## Memory: " in summary.read_text()
