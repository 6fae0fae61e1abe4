"""The `--json` document of a run. It is a stable interface: fields are added, never renamed."""

from typing import Any

import msgspec

from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.matrix.findings import Finding, findings, rate_of_finding
from recollect.verify.matrix.results import Compared, Result, Results
from recollect.verify.running.scenario import Scenario


def document(results: Results) -> dict[str, Any]:
    found = findings(results)
    of_cell = {place: finding.number for finding in reversed(found) for place in finding.cells}
    return {
        "recollect": results.recollect,
        "seed": results.seed,
        "date": results.date,
        "elapsed_s": round(results.elapsed_s, 1),
        "baseline": None if results.baseline is None else _compared(results.baseline),
        "repeated": None if results.repeated is None else msgspec.to_builtins(results.repeated),
        "counts": dict(results.counts),
        "findings": [_finding(finding, results) for finding in found],
        "cells": [
            _cell(result, results) | {"finding": of_cell.get(place)}
            for place, result in enumerate(results.results)
        ],
    }


def _cell(result: Result, results: Results) -> dict[str, Any]:
    scenario = result.scenario
    figures: dict[str, Any] = msgspec.to_builtins(result.verdict)
    return {
        "target": scenario.target,
        "target_version": result.release or None,
        "traits": list(result.traits),
        "form": scenario.form or None,
        "engine": scenario.engine_name,
        "engine_version": result.engine_version,
        "provider": result.provider,
        "policy": scenario.policy,
        "real_policy": result.real_policy or scenario.policy,
        "fault": scenario.fault,
        "variant": scenario.variant,
        "workload": scenario.workload,
        **figures,
        "elapsed_s": round(result.elapsed_s, 2),
        "operations": result.operations,
        "reproduced": result.reproduced,
        "smallest": None if result.smallest is None else _size(result.smallest),
        "notes": list(result.notes),
        "history": results.history_of(result),
        "replay": results.replay_of(result),
    }


def _finding(finding: Finding, results: Results) -> dict[str, Any]:
    return {
        "number": finding.number,
        "target": finding.target,
        "name": finding.name,
        "silent": finding.silent,
        "sentence": finding.sentence,
        "also": list(finding.names[1:]),
        "confirmed": finding.confirmation,
        "cells": [results.results[place].scenario.title for place in finding.cells],
        "hides": [results.results[place].scenario.title for place in finding.hides],
        "smallest": {
            **_size(finding.smallest),
            "shrunk": finding.shrunk,
            "steps": [msgspec.to_builtins(step) for step in finding.steps],
        },
        "rate": None if (found := rate_of_finding(finding, results)) is None else msgspec.to_builtins(found),
        "replay": finding.replay,
    }


def _compared(baseline: Compared) -> dict[str, Any]:
    return {
        "new": list(baseline.new),
        "still": list(baseline.still),
        "fixed": list(baseline.fixed),
        "not_run": list(baseline.not_run),
    }


def _size(scenario: Scenario) -> dict[str, Any]:
    size: dict[str, Any] = {
        "writers": scenario.writers,
        "sessions": scenario.sessions,
        "operations": scenario.ops_max,
    }
    if scenario.workload == INTERLEAVINGS:
        size |= {"how": scenario.how, "program": scenario.program, "schedule": scenario.schedule}
    return size
