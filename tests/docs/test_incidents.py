"""Every command of docs/incidents.md is run, and prints the anomaly it promises."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import build

PROJECT = Path(__file__).parent.parent.parent
ROW = re.compile(
    r"^\| \*\*(?P<name>.+?)\*\*.* \| `(?P<command>recollect .+?)` \| (?P<anomalies>`[a-z-]+`(?: or `[a-z-]+`)*) \|$",
    re.MULTILINE,
)
INCIDENTS = [match.groupdict() for match in ROW.finditer((PROJECT / "docs" / "incidents.md").read_text())]


def test_the_table_was_read() -> None:
    rows = (PROJECT / "docs" / "incidents.md").read_text().count("\n| **")
    assert len(INCIDENTS) == rows >= 18


SEEDS = (11, 12, 13)
"""Races are real here, so a miss is no failure; three are."""


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident["name"])
def test_the_command_prints_the_anomaly(
    incident: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "tests.planted." in incident["command"] and "RECOLLECT_FULL_DOCS" not in os.environ:
        pytest.skip("tests/planted has run this store; to run the command, set RECOLLECT_FULL_DOCS=1")
    monkeypatch.chdir(PROJECT)
    _, *arguments = shlex.split(incident["command"])
    promised, said = set(re.findall("`(.+?)`", incident["anomalies"])), []
    for seed in SEEDS:
        own = f"--json - --out {tmp_path / str(seed)} --seed {seed} --no-confirm --workers 1"
        words = [*arguments, *own.split()]
        done = CliRunner().invoke(build(words), words)
        assert done.exit_code in (0, 1), done.output
        cells = json.loads(done.stdout)["cells"]
        if promised & {anomaly["name"] for cell in cells for anomaly in cell["anomalies"]}:
            return
        said.append(done.stderr)
    pytest.fail("\n".join(said))
