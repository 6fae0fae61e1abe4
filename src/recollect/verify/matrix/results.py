"""The result of a cell, and of a whole run: what reports render, and what is saved."""

import shlex
from pathlib import Path
from typing import Any

import msgspec

from recollect import __version__
from recollect.guarantees import SURVIVES_IF
from recollect.verify.judging.verdict import Verdict
from recollect.verify.running.scenario import Scenario

SUMMARY = "results.json"

Require = str
"""``written`` or ``fsynced``: what an acknowledged message must survive for the run to succeed."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One cell: its scenario, its verdict, and what running it again showed."""

    scenario: Scenario
    verdict: Verdict
    engine_version: str = ""
    provider: str = ""
    elapsed_s: float = 0.0
    operations: int = 0
    folder: str = ""
    """Relative to the run's folder."""
    reproduced: tuple[int, int] | None = None
    """How often of how many further runs the same anomaly was seen."""
    smallest: Scenario | None = None
    """The smallest schedule that still shows it."""
    notes: tuple[str, ...] = ()


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    recollect: str = __version__
    seed: int = 0
    elapsed_s: float = 0.0
    folder: str = ""
    shard: str = ""
    """``2/5``, if this is one part of a run."""
    results: tuple[Result, ...] = ()

    @property
    def seeds(self) -> list[int]:
        """Merged shards may have had one each."""
        return sorted({result.scenario.seed for result in self.results} or {self.seed})

    def save(self, folder: Path) -> None:
        (folder / SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(self)))


def load(folder: Path) -> Results:
    return msgspec.json.decode((folder / SUMMARY).read_bytes(), type=Results)


def document(results: Results) -> dict[str, Any]:
    """The `--json` document: the stable interface."""
    return {
        "recollect": results.recollect,
        "seed": results.seed,
        "elapsed_s": round(results.elapsed_s, 1),
        "cells": [cell(result, results.folder) for result in results.results],
    }


def cell(result: Result, folder: str) -> dict[str, Any]:
    scenario, verdict = result.scenario, result.verdict
    place = place_of(result, folder)
    figures: dict[str, Any] = msgspec.to_builtins(verdict)
    return {
        "target": scenario.target,
        "engine": scenario.engine_name,
        "engine_version": result.engine_version,
        "provider": result.provider,
        "policy": scenario.policy,
        "fault": scenario.fault,
        "variant": scenario.variant,
        "workload": scenario.workload,
        **figures,
        "elapsed_s": round(result.elapsed_s, 2),
        "operations": result.operations,
        "reproduced": result.reproduced,
        "smallest": None if result.smallest is None else _size(result.smallest),
        "notes": list(result.notes),
        "history": f"{place}/history.jsonl" if place else None,
        "replay": replay_command(place) if place else None,
    }


def place_of(result: Result, folder: str) -> str:
    """The cell's own folder; of merged shards each cell has the whole of it."""
    return f"{folder}/{result.folder}" if folder and result.folder else result.folder


def replay_command(folder: str) -> str:
    return f"recollect replay {shlex.quote(folder)}"


def _size(scenario: Scenario) -> dict[str, Any]:
    return {"writers": scenario.writers, "sessions": scenario.sessions, "operations": scenario.ops_max}


def exit_code(results: Results, require: Require | None = None) -> int:
    """0 held or documented loss, 1 violated or a loss worse than required, 3 nothing could be concluded."""
    statuses = {result.verdict.status for result in results.results}
    if not statuses and results.shard:
        return 0  # the other parts have all there is
    if "violated" in statuses or (require and any(worse_than(result, require) for result in results.results)):
        return 1
    return 0 if statuses & {"held", "documented-loss"} else 3


def worse_than(result: Result, require: Require) -> bool:
    """Whether a documented loss took messages that had to survive."""
    if result.verdict.status != "documented-loss":
        return False
    needed = SURVIVES_IF.get(result.scenario.fault)
    return needed is not None and (require == "fsynced" or needed == "written")
