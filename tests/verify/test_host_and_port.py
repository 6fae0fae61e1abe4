"""Engines have passwords: targets that use only host and port still work, and no report has a password in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.secret.canary import PLAIN, in_files, traces

PROJECT = str(Path(__file__).parent.parent.parent)
TIMEOUT_S = 200.0
CANARY = f"""
import pathlib, secrets
def canary(size=None):
    pathlib.Path(__file__).parent.parent.joinpath("used").touch()
    return {PLAIN!r}
secrets.token_urlsafe = canary
"""
"""Run by every interpreter that is started: all passwords of engines are the same, and easy to find."""


def verify(tmp_path: Path, *words: str) -> tuple[list[dict[str, object]], str]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(CANARY)
    work = tmp_path / "work"
    work.mkdir()
    reports = ("--json", "all.json", "--html", "page.html", "--junit", "junit.xml", "--out", "runs")
    done = subprocess.run(
        [sys.executable, "-m", "recollect", "verify", *words, *reports, "--no-confirm"],
        cwd=work,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{PROJECT}"},
        check=False,
    )
    said = done.stdout + done.stderr
    assert (tmp_path / "used").exists(), "no engine has the canary for a password"
    assert not traces(said)
    assert not in_files(work)
    cells: list[dict[str, object]] = json.loads((work / "all.json").read_text())["cells"]
    return cells, said


@pytest.mark.parametrize("factory", ["postgres", "redis_list"])
def test_a_target_that_uses_host_and_port_alone(factory: str, tmp_path: Path) -> None:
    engine = factory.partition("_")[0]
    target = f"tests.verify.host_and_port:{factory}"
    cells, said = verify(
        tmp_path,
        target,
        "--engine",
        engine,
        "--fault",
        "kill-engine",
        "--fault",
        "latency",
        "--workload",
        "append",
    )
    assert {cell["fault"] for cell in cells} == {"kill-engine", "latency"}, said
    assert all(isinstance(cell["acked"], int) and cell["acked"] > 0 for cell in cells), said
    assert {cell["status"] for cell in cells} <= {"held", "documented-loss"}, said


@pytest.mark.parametrize("target", ["postgres", "redis"])
def test_no_report_has_the_password_of_an_engine(target: str, tmp_path: Path) -> None:
    cells, said = verify(tmp_path, target, "--fault", "kill-engine", "--fault", "replica-lag")
    assert {cell["status"] for cell in cells} <= {"held", "documented-loss", "violated"}, said
    assert sum(int(str(cell["acked"])) for cell in cells) > 0
