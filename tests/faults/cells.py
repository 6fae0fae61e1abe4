"""Running one cell, as the matrix does."""

import importlib
from pathlib import Path
from typing import Any

from recollect.verify.faults import FAULTS
from recollect.verify.runner import Run
from recollect.verify.scenario import Scenario
from recollect.verify.verdict import Verdict

WEEK_S = 7 * 86400.0
POLICIES = {"sqlite": "wal-full", "redis": "aof-always", "postgres": "default"}


def run_cell(folder: Path, **scenario: Any) -> Verdict:
    cell = Scenario(**{"seed": 1, "retain_s": WEEK_S, **scenario})
    assert FAULTS[cell.fault].obstacle(cell) is None
    return Run(cell, folder).execute()


def run_planted(name: str, folder: Path) -> tuple[Verdict, str]:
    """The cell that a planted store declares, and the anomaly that must be found there."""
    declared = dict(importlib.import_module(f"tests.planted.{name}").DECLARES)
    anomaly = declared.pop("anomaly")
    return run_cell(folder, target=f"tests.planted.{name}:make", **declared), anomaly


def run_ours(store: str, fault: str, folder: Path, **more: Any) -> Verdict:
    return run_cell(folder, target=store, engine=store, policy=POLICIES[store], fault=fault, **more)


def outcome_errors(folder: Path, kind: str) -> list[str]:
    """The errors of all operations of a run that ended like this."""
    from recollect.verify.history import History

    return [event.error or "" for event in History(folder / "history.jsonl") if event.kind == kind]
