"""Every command of docs/incidents.md is run, and prints the anomaly it promises."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
ROW = re.compile(
    r"^\| \*\*(?P<name>.+?)\*\*.* \| `(?P<command>recollect .+?)` \| `(?P<anomaly>[a-z-]+)` \|$", re.MULTILINE
)
INCIDENTS = [match.groupdict() for match in ROW.finditer((PROJECT / "docs" / "incidents.md").read_text())]


def test_the_table_was_read() -> None:
    rows = (PROJECT / "docs" / "incidents.md").read_text().count("\n| **")
    assert len(INCIDENTS) == rows >= 18


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident["name"])
def test_the_command_prints_the_anomaly(incident: dict[str, str], tmp_path: Path) -> None:
    _, *arguments = shlex.split(incident["command"])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "recollect",
            *arguments,
            "--json",
            "-",
            "--out",
            str(tmp_path),
            "--seed",
            "11",
            "--no-confirm",
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1), done.stderr
    found = {anomaly["name"] for cell in json.loads(done.stdout)["cells"] for anomaly in cell["anomalies"]}
    assert incident["anomaly"] in found, (found, done.stderr)
