"""The GitHub Action's own steps, run as the runner runs them: by bash, with their inputs in the environment."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parent.parent.parent
ACTION: dict[str, Any] = yaml.safe_load((PROJECT / "action.yml").read_text())
CHANGED, _, VERIFY, UPLOAD = ACTION["runs"]["steps"]


def run(step: dict[str, Any], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=cwd,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(PROJECT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A pull request's checkout: one commit ahead of origin/main, which changed memory/store.py."""
    folder = tmp_path / "checkout"
    commands = (
        "git init -q -b main . && git config user.name t && git config user.email t@t",
        "mkdir memory 'two words' && touch memory/store.py 'two words/a' other.py && git add . && git commit -qm one",
        "git update-ref refs/remotes/origin/main HEAD && git checkout -qb topic",
        "echo changed > memory/store.py && git commit -qam two",
    )
    folder.mkdir()
    for command in commands:
        subprocess.run(command, shell=True, cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    ("changed", "base", "ran"),
    [
        ("", "main", "true"),
        ("memory", "main", "true"),
        ("other.py\nmemory/store.py", "main", "true"),
        ("other.py\ntwo words", "main", "false"),
        ("other.py", "", "true"),  # not a pull request
    ],
)
def test_nothing_runs_where_memory_was_not_changed(checkout: Path, changed: str, base: str, ran: str) -> None:
    output = checkout / "output"
    done = run(CHANGED, checkout, CHANGED=changed, BASE=base, GITHUB_OUTPUT=str(output))
    assert done.returncode == 0, done.stderr
    assert output.read_text() == f"ran={ran}\n"


def test_it_verifies_and_leaves_a_report(tmp_path: Path) -> None:
    inputs = {"TARGET": "sqlite", "ENGINE": "sqlite", "BUDGET": "20s"}
    summary = tmp_path / "summary.md"
    done = run(
        VERIFY,
        tmp_path,
        **inputs,
        ARGUMENTS="--fault kill-app --workload append --no-confirm",
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = {file.name for file in (tmp_path / UPLOAD["with"]["path"]).iterdir()}
    assert {"memory.json", "memory.html", "memory.xml", "runs"} <= written
    assert "no findings" in summary.read_text()


def test_a_store_that_cannot_be_opened_fails_the_job(tmp_path: Path) -> None:
    inputs = {"TARGET": "nothing.here:make", "ENGINE": "sqlite", "BUDGET": "20s", "ARGUMENTS": ""}
    assert run(VERIFY, tmp_path, **inputs).returncode == 2
