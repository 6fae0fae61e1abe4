"""The GitHub Action's own steps, run as the runner runs them: by bash, with their inputs in the environment."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parent.parent.parent
TEXT = (PROJECT / "action.yml").read_text()
ACTION: dict[str, Any] = yaml.safe_load(TEXT)
CHANGED, INSTALL, VERIFY, UPLOAD = ACTION["runs"]["steps"]


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


USED = re.compile(r"inputs\.(\w+)")
STEP = re.compile(r"steps\.(\w+)\.outputs\.(\w+)")


def mistakes(text: str) -> list[str]:
    """What a runner would refuse or read as empty in an action of steps; actionlint reads workflows only."""
    action = yaml.safe_load(text)
    steps, inputs = action["runs"]["steps"], set(action["inputs"])
    body = "".join(re.findall(r"\$\{\{.*?\}\}|^ *- if: .*$|^ *if: .*$", text, re.MULTILINE))
    found = [f"{name} is no input" for name in sorted(set(USED.findall(body)) - inputs)]
    found += [f"input {name} is not used" for name in sorted(inputs - set(USED.findall(body)))]
    found += [
        f"input {name} has no description"
        for name, told in action["inputs"].items()
        if not told.get("description")
    ]
    found += [
        f"output {name} has no value" for name, told in action["outputs"].items() if not told.get("value")
    ]
    for number, step in enumerate(steps):
        if ("run" in step) == ("uses" in step):
            found.append(f"step {number} has to run or to use something")
        if "run" in step and "shell" not in step:
            found.append(f"step {number} has no shell")
        if "run" in step and "${{" in step["run"]:
            found.append(f"step {number} puts an expression into a script, not into its environment")
        if "uses" in step and not re.fullmatch(r"[\w-]+/[\w-]+@\w[\w.]*", step["uses"]):
            found.append(f"step {number} uses {step['uses']}")
    written = {
        (step["id"], name)
        for step in steps
        if "id" in step
        for name in re.findall(r'"(\w+)=', step.get("run", ""))
    }
    return found + [
        f"steps.{step}.outputs.{name}" for step, name in sorted(set(STEP.findall(body)) - written)
    ]


def test_the_action_is_well_formed() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert mistakes(TEXT) == []


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("inputs.budget }}", "inputs.budgt }}", "budgt is no input"),
        ("inputs.page != ''", "'x' != ''", ""),
        ("TARGET: ${{ inputs.target }}", "TARGET: x", "input target is not used"),
        ("- id: changed\n      shell: bash", "- id: changed", "step 0 has no shell"),
        ('"$INSTALL"', "${{ inputs.install }}", "step 1 puts an expression"),
        ("upload-artifact@v4", "upload-artifact", "step 3 uses actions/upload-artifact"),
        ("steps.changed.outputs.ran }}", "steps.changed.outputs.run }}", "steps.changed.outputs.run"),
        (
            "steps.changed.outputs.ran == 'true' && inputs.install",
            "steps.chngd.outputs.ran && inputs.install",
            "steps.chngd",
        ),
    ],
)
def test_each_mistake_is_seen(good: str, bad: str, told: str) -> None:
    assert good in TEXT
    found = mistakes(TEXT.replace(good, bad, 1))
    assert any(one.startswith(told) for one in found) if told else found == []


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
        ("other.py\n\ntwo words\n", "main", "false"),  # as a block in YAML has it
        ("memory\n", "main", "true"),
        ("\n", "main", "true"),
        ("other.py", "", "true"),  # not a pull request
    ],
)
def test_nothing_runs_where_memory_was_not_changed(checkout: Path, changed: str, base: str, ran: str) -> None:
    output = checkout / "output"
    done = run(CHANGED, checkout, CHANGED=changed, BASE=base, GITHUB_OUTPUT=str(output))
    assert done.returncode == 0, done.stderr
    assert output.read_text() == f"ran={ran}\n"


@pytest.mark.parametrize(
    ("asked", "installed"),
    [
        (ACTION["inputs"]["install"]["default"], "/actions/it is here[verify]"),
        ("recollect[verify]==0.1.0", "recollect[verify]==0.1.0"),
    ],
)
def test_it_installs_its_own_release_or_what_is_asked_for(tmp_path: Path, asked: str, installed: str) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    python.chmod(0o755)
    there = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_ACTION_PATH": "/actions/it is here"}
    done = run(INSTALL, tmp_path, INSTALL=asked, **there)
    assert done.stdout.splitlines() == ["-m", "pip", "install", "--quiet", installed], done.stderr


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
