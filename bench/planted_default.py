"""Planted and correct stores as a user tries them: `recollect verify STORE` with its default cells and budget.

Usage: python bench/planted.py --default [--seeds 20] [--budget 60] [--only planted|twins|correct] [--again] [NAME …]

The planted bug is to be the first finding, under one of its names, with at most one more beside it. The same store
without the bug, and every correct store, is to have no finding at all. Stores that are caught as a documented loss have
no finding: only their twins are tried. A store whose fault is not among the default ones says which options it is tried
with (`Planted.asked_for`).

All of it takes days on two cores, so every run adds a line to bench/results/planted-default.jsonl, and a run that is
there already, with the same budget, is not done again: call it as often as there is time. `--again` repeats those that
went wrong; the last line of a run counts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.planted.correct.cells import correct_stores
from tests.planted.correct.cells import target as correct_target
from tests.planted.planted import catalogue

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "planted-default.jsonl"
FINDINGS_MAX = 2
BUDGET_S = 60
"""Of lines that do not say; a busy machine needs more for the same cells, and such runs say so."""
SIDES = ("planted", "twins", "correct")
Line = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    side: str
    store: str
    seed: int

    def command(self) -> list[str]:
        if self.side == "correct":
            return [correct_target(self.store), "--engine", correct_stores()[self.store][0].engine]
        planted, is_twin = catalogue()[self.store], self.side == "twins"
        target = f"tests.planted.{self.store}:{'twin' if is_twin else 'factory'}"
        return [
            *(target, "--engine", planted.engine),
            *planted.asked_for,
            *_options(planted.more | planted.twin_more if is_twin else planted.more),
        ]

    def run(self, budget_s: int) -> Line:
        """What the command said; a run without a report said nothing that counts for either side."""
        started_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            command = [
                *(sys.executable, "-m", "recollect", "verify", *self.command()),
                *("--seed", str(self.seed), "--budget", f"{budget_s}s"),
                *("--json", str(report), "--out", str(Path(folder) / "run")),
            ]
            environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
            line: Line = {"side": self.side, "store": self.store, "seed": self.seed, "exit": done.returncode}
            if report.exists():
                line |= _told(json.loads(report.read_text()))
            else:
                line["crashed"] = done.stderr.decode(errors="replace")[-500:]
        line["good"] = self.is_good(line)
        return line | {"budget_s": budget_s, "elapsed_s": round(time.monotonic() - started_s, 1)}

    def is_good(self, line: Line) -> bool:
        found = line.get("findings")
        if found is None:
            return False
        if self.side != "planted":
            return not found
        wanted = set(catalogue()[self.store].anomalies)
        return bool(found) and len(found) <= FINDINGS_MAX and not wanted.isdisjoint(found[0]["names"])


def _told(document: dict[str, Any]) -> Line:
    found = [
        {"names": [one["name"], *one["also"]], "cells": one["cells"][:3], "sentence": one["sentence"]}
        for one in document["findings"]
    ]
    unknown = {
        f"{cell['policy']} {cell['fault']} {cell['workload']}": cell["reason"]
        for cell in document["cells"]
        if cell["status"] == "unknown"
    }
    statuses = dict(Counter(cell["status"] for cell in document["cells"]))
    late = sorted(
        {cell["fault"] for cell in document["cells"] if (cell["reason"] or "").startswith("budget")}
    )
    told: Line = {"findings": found, "cells": statuses}
    return told | ({"unknown": unknown} if unknown else {}) | ({"no_time_for": late} if late else {})


def _options(more: dict[str, Any]) -> list[str]:
    """What a store cannot be tried without, as options of the command."""
    given = {"previous": "--previous", "retain_s": "--retain"}
    return [
        text
        for field, option in given.items()
        if field in more
        for text in (option, f"{more[field]:g}s" if field == "retain_s" else str(more[field]))
    ]


def trials(names: list[str], seeds: range, sides: list[str]) -> Iterator[Trial]:
    """Seed by seed, so that a run that is cut short has tried many stores."""
    planted = catalogue()
    for seed in seeds:
        for side in sides:
            for name in names:
                is_there = name in (correct_stores() if side == "correct" else planted)
                if is_there and (side != "planted" or planted[name].status == "violated"):
                    yield Trial(side, name, seed)


def remembered(path: Path = RESULTS) -> dict[Trial, Line]:
    """What was run before; judged again by what the stores declare now, and without the stores that are no more."""
    lines: dict[Trial, Line] = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        line = json.loads(text)
        trial = Trial(line["side"], line["store"], line["seed"])
        if trial.store in (correct_stores() if trial.side == "correct" else catalogue()):
            lines[trial] = line | {"good": trial.is_good(line)}
    return lines


def default_runs(
    names: list[str], seeds: range, budget_s: int, sides: list[str], *, is_again: bool, workers: int
) -> int:
    """The trials that are not in the results yet; 1 if any store was told badly, now or before."""
    wanted = list(trials(names, seeds, sides or list(SIDES)))
    before = remembered()
    due = [
        trial
        for trial in wanted
        if before.get(trial, {}).get("budget_s", BUDGET_S) != budget_s
        or trial not in before
        or (is_again and not before[trial]["good"])
    ]
    print(f"{len(due)} of {len(wanted)} runs to do", flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    with ThreadPoolExecutor(workers) as pool, RESULTS.open("a") as file:
        for trial, line in zip(due, pool.map(lambda trial: trial.run(budget_s), due), strict=True):
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(_summary(trial, line), flush=True)
    return tally({trial: line for trial, line in remembered().items() if trial in set(wanted)})


def tally(lines: dict[Trial, Line]) -> int:
    bad = [trial for trial, line in lines.items() if not line["good"]]
    for side in SIDES:
        mine = [trial for trial in lines if trial.side == side]
        wrong = sorted({trial.store for trial in bad if trial.side == side})
        stores = len({trial.store for trial in mine})
        longer = sum(lines[trial].get("budget_s", BUDGET_S) > BUDGET_S for trial in mine)
        print(
            f"{side}: {len(mine)} runs of {stores} stores ({longer} with more than {BUDGET_S} s), "
            f"told badly: {', '.join(wrong) or 'none'}"
        )
    return 1 if bad else 0


def _summary(trial: Trial, line: Line) -> str:
    found = "; ".join(
        f"{'/'.join(one['names'])} in {', '.join(one['cells'][:2])}" for one in line.get("findings", ())
    )
    said = line.get("crashed") or found or "no finding"
    unknown = "".join(f"\n    unknown: {cell}: {reason}" for cell, reason in line.get("unknown", {}).items())
    if not line["good"] and line.get("no_time_for"):
        said += f"\n    no time for {', '.join(line['no_time_for'])}"
    mark = "ok " if line["good"] else "BAD"
    return f"{mark} {trial.side} {trial.store} {trial.seed} ({line['elapsed_s']} s): {said}{unknown}"
