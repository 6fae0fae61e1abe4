"""Running one cell, as the matrix does."""

from pathlib import Path
from typing import Any

from recollect.verify.judging.history import History
from recollect.verify.judging.verdict import Verdict
from recollect.verify.running.faults import fault_named
from recollect.verify.running.run import Run
from recollect.verify.running.scenario import Scenario

WEEK_S = 7 * 86400.0
POLICIES = {"sqlite": "wal-full", "redis": "aof-always", "postgres": "default"}


def our_cell(store: str, fault: str, **more: Any) -> Scenario:
    """One of our stores on its engine, with a policy that loses nothing."""
    return Scenario(
        target=store, engine=store, policy=POLICIES[store], fault=fault, seed=1, retain_s=WEEK_S, **more
    )


def run_cell(scenario: Scenario, folder: Path) -> Verdict:
    assert fault_named(scenario.fault).obstacle(scenario) is None
    return Run(scenario, folder).execute()


def errors(folder: Path, kind: str, during: str) -> list[str]:
    """What the operations said that ended as `kind` while this fault struck."""
    struck = False
    said = []
    for event in History(folder / "history.jsonl"):
        if event.kind in ("fault-injected", "fault-healed") and event.operation == during:
            struck = event.kind == "fault-injected"
        elif struck and event.kind == kind:
            said.append(event.error or "")
    return said


def acknowledged_after(folder: Path, fault: str) -> int:
    """How many writes were acknowledged after it was healed."""
    count, healed = 0, False
    for event in History(folder / "history.jsonl"):
        healed = healed or (event.kind == "fault-healed" and event.operation == fault)
        count += healed and event.kind == "ok" and event.operation == "append"
    return count
