"""Scenarios that nobody saved: refused in a sentence, before anything runs or is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recollect.cli import build

PLAIN: dict[str, Any] = {"target": "sqlite", "engine": "sqlite", "policy": "wal-full", "fault": "restart"}
HOSTILE: dict[str, dict[str, Any]] = {
    "no such fault": {"fault": "nonsense"},
    "no such workload": {"workload": "nonsense"},
    "no such variant": {"fault": "kill-engine", "variant": "nonsense"},
    "orders for a terminal": {"target": "\x1b[2J\x1b]0;owned\x07sqlite"},
    "a NUL": {"policy": "a\0b"},
    "a name without end": {"policy": "x" * 5_000},
    "no writer": {"writers": 0},
    "fewer than none": {"readers": -1},
    "a process for everybody": {"writers": 10**9},
    "no session": {"sessions": 0},
    "for ever": {"before_s": 1e308},
    "back in time": {"after_s": -1.0},
    "retention of nothing": {"retain_s": 0},
    "no object": {"target": ["sqlite"]},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_scenario_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "scenario.json").write_text(json.dumps({**PLAIN, **change}))
    done = CliRunner().invoke(build(["replay"]), ["replay", str(tmp_path)])
    assert done.exit_code == 2, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "\x1b" not in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["scenario.json"]
