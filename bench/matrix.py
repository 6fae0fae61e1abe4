"""The default matrix, as a newcomer runs it: cells, operations checked, seconds.

Usage: python bench/matrix.py [--budget 60s] [--workers 2]

Runs `recollect verify` with no target and prints what it took, per engine and in total, into bench/results/matrix.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "matrix.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--workers", default="2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        started = time.monotonic()
        command = [sys.executable, "-m", "recollect", "verify", "--json", str(out), "--out", folder]
        done = subprocess.run(
            [*command, "--budget", options.budget, "--workers", options.workers], check=False
        )
        seconds = time.monotonic() - started
        cells = json.loads(out.read_text())["cells"]
    summary = {
        "seconds": round(seconds, 1),
        "exit_code": done.returncode,
        "engines": {engine: figures(cells, engine) for engine in sorted({cell["engine"] for cell in cells})},
        "total": figures(cells, None),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(summary, indent=2) + "\n")
    print(f"\n{'engine':10} {'cells':>6} {'skipped':>8} {'operations':>11} {'cell seconds, median':>21}")
    for name, row in [*summary["engines"].items(), ("total", summary["total"])]:  # type: ignore[attr-defined]
        print(
            f"{name:10} {row['cells']:6} {row['skipped']:8} {row['operations']:11} {row['cell_s_median']:21}"
        )
    print(f"{seconds:.1f} s in all")


def figures(cells: list[dict[str, Any]], engine: str | None) -> dict[str, Any]:
    wanted = [cell for cell in cells if engine in (None, cell["engine"])]
    ran = [cell for cell in wanted if cell["status"] != "skipped"]
    times = sorted(cell["elapsed_s"] for cell in ran)
    return {
        "cells": len(ran),
        "skipped": len(wanted) - len(ran),
        "operations": sum(cell["operations"] for cell in ran),
        "cell_s_median": times[len(times) // 2] if times else None,
        "statuses": {
            status: sum(cell["status"] == status for cell in ran) for status in {c["status"] for c in ran}
        },
    }


if __name__ == "__main__":
    main()
