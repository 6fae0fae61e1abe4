"""The store that README shows, as a new user would try it: one bug, one finding; with another bug, two."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parent.parent.parent / "README.md"
LINES_MAX = 40
SEEDS = (7, 8, 9)
"""On a busy machine a cell may end before its clock has been moved."""
PLAIN, EXPIRING = "json.dumps(messages))", "json.dumps(messages), ex=300)"


def readme_store() -> str:
    found = re.search(r"```python\n(# memory\.py\n.*?)```", README.read_text(), re.DOTALL)
    assert found is not None, "README opens with a store in memory.py"
    return found[1]


def verified(folder: Path, store: str, seed: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The findings, and what the terminal ends with once all cells are told."""
    (folder / "memory.py").write_text(store)
    report = folder / "report.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "recollect", "verify", "memory:make_store", "--engine", "redis"),
            *("--policy", "aof-everysec", "--workload", "rewrite", "--seed", str(seed), "--budget", "120s"),
            *("--fault", "none", "--fault", "clock-forward", "--json", str(report)),
        ],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("memory:make_store on "))
    findings: list[dict[str, Any]] = json.loads(report.read_text())["findings"]
    return findings, lines[first:]


@pytest.mark.parametrize(
    ("store", "names"),
    [
        (readme_store(), ["lost-update"]),
        (readme_store().replace(PLAIN, EXPIRING), ["lost-update", "expired-early"]),
    ],
    ids=["as it stands", "with an expiry"],
)
def test_a_bug_is_a_finding_and_two_are_two(tmp_path: Path, store: str, names: list[str]) -> None:
    assert (EXPIRING in store) == (len(names) > 1)
    for seed in SEEDS:
        findings, lines = verified(tmp_path, store, seed)
        found = [finding["name"] for finding in findings]
        assert set(found) <= set(names), findings
        if found == names:
            break
    assert found == names, findings
    assert len(names) > 1 or len(lines) <= LINES_MAX, "\n".join(lines)
    told = [line for line in lines if line.startswith("✗ Finding")]
    assert [line.split()[3] for line in told] == names[::-1], "the most important one is last"
