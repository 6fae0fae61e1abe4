"""`python -m recollect.verify.judging.analyze HISTORY [--json FILE]`: the verdict of a saved history.

No engine is needed: a verdict is a pure function of the history. Exit codes are those of `recollect verify`:
0 held or documented loss, 1 violated, 2 not a history (or wrong usage), 3 nothing could be concluded.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from recollect.verify.judging.gathering import collect
from recollect.verify.judging.history import AnyHistory, History, HistoryError
from recollect.verify.judging.op import Header
from recollect.verify.judging.order_proof import prove
from recollect.verify.judging.verdict import Verdict, judge

EXIT_CODES = {"held": 0, "documented-loss": 0, "violated": 1, "unknown": 3, "skipped": 3}


def analyze(history: AnyHistory) -> Verdict:
    """Collect the evidence of a history and judge it."""
    # The pass makes millions of short-lived objects and no cycles; looking for cycles costs time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        evidence = collect(history)
        evidence.proven = prove(history, evidence)
        return judge(evidence)
    finally:
        if was_enabled:
            gc.enable()


def cell(header: Header, verdict: Verdict, *, history: str = "") -> dict[str, object]:
    """One cell of the `--json` document: the scenario's names beside the verdict's figures."""
    names = ("target", "engine", "engine_version", "provider", "policy", "fault", "workload")
    fields = {name: getattr(header, name) for name in names}
    figures: dict[str, object] = msgspec.to_builtins(verdict)
    return {**fields, **figures, "history": history, "replay": None}


def document(header: Header, verdict: Verdict, path: str) -> dict[str, object]:
    return {
        "recollect": header.recollect,
        "seed": header.seed,
        "cells": [cell(header, verdict, history=path)],
    }


def render(verdict: Verdict) -> str:
    """The verdict in a few lines, for people."""
    window = "" if verdict.loss_window_s is None else f", reaching back {verdict.loss_window_s:.3f} s"
    lines = [
        f"{verdict.status}" + (f": {verdict.reason}" if verdict.reason else ""),
        f"  acknowledged {verdict.acked}, kept {verdict.kept}, lost {verdict.lost}{window}; "
        f"forgotten or expired {verdict.forgotten}, not read back {verdict.unchecked}, "
        f"unknown outcomes {verdict.unknown_outcomes}",
        f"  promise: {verdict.promise}",
    ]
    for anomaly in verdict.anomalies:
        voice = "silent" if anomaly.silent else "loud"
        lines.append(f"  {anomaly.name} × {anomaly.count} ({voice}): {anomaly.sentence}")
    lines += [f"  not covered: {gap}" for gap in verdict.not_covered]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m recollect.verify.judging.analyze", description=__doc__)
    parser.add_argument("history", type=Path, help="a saved history (JSONL)")
    parser.add_argument("--json", metavar="FILE", help="write the verdict as JSON; - for standard output")
    options = parser.parse_args(arguments)
    try:
        history = History(options.history)
        verdict = analyze(history)
    except HistoryError as error:
        sys.stderr.write(f"{options.history}: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"{options.history}: {error.strerror}\n")
        return 2
    text = msgspec.json.format(
        msgspec.json.encode(document(history.header, verdict, str(options.history))), indent=2
    ).decode()
    if options.json == "-":
        sys.stdout.write(text + "\n")
    else:
        sys.stdout.write(render(verdict) + "\n")
        if options.json:
            Path(options.json).write_text(text + "\n")
    return EXIT_CODES[verdict.status]


if __name__ == "__main__":
    sys.exit(main())
