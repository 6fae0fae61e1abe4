"""`python -m recollect.verify.analyze HISTORY [--json FILE]`: the verdict of a saved history.

No engine is needed: a verdict is a pure function of the history. Exit codes are those of `recollect verify`:
0 held or documented loss, 1 violated, 2 not a history (or wrong usage), 3 nothing could be concluded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from recollect import exit_codes, private
from recollect.verify.judging.history import HistoryError
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.document import document
from recollect.verify.matrix.results import exit_code, of_history


def render(verdict: Verdict) -> str:
    """The verdict in a few lines, for people."""
    window = "" if verdict.loss_window_s is None else f", reaching back {verdict.loss_window_s:.3f} s"
    return "\n".join(
        [
            f"{verdict.status}" + (f": {verdict.reason}" if verdict.reason else ""),
            f"  acknowledged {verdict.acked}, kept {verdict.kept}, lost {verdict.lost}{window}; "
            f"forgotten or expired {verdict.forgotten}, not read back {verdict.unchecked}, "
            f"unknown outcomes {verdict.unknown_outcomes}",
            f"  promise: {verdict.promise}",
            *(f"  {anomaly.told}" for anomaly in verdict.anomalies),
            *(f"  not covered: {gap}" for gap in verdict.not_covered),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m recollect.verify.analyze", description=__doc__)
    parser.add_argument("history", type=Path, help="a saved history (JSONL)")
    parser.add_argument("--json", metavar="FILE", help="write the verdict as JSON; - for standard output")
    options = parser.parse_args(arguments)
    try:
        results = of_history(options.history)
    except HistoryError as error:
        sys.stderr.write(f"{options.history}: {error}\n")
        return exit_codes.USAGE
    except OSError as error:
        sys.stderr.write(f"{options.history}: {error.strerror}\n")
        return exit_codes.USAGE
    text = msgspec.json.format(msgspec.json.encode(document(results)), indent=2).decode()
    if options.json == "-":
        sys.stdout.write(text + "\n")
    else:
        sys.stdout.write(render(results.results[0].verdict) + "\n")
        if options.json:
            private.write_artifact(Path(options.json), text + "\n")
    return exit_code(results)
