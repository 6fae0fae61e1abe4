"""What each setting loses: the table in docs/power-loss.md, as `recollect verify` itself measures it.

For each engine one command, which can be repeated by hand; its JSON document is the table.

    python bench/losses.py [--seed 7] [--only redis]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from typing import Any

POLICIES = {
    "redis": ("none", "rdb", "aof-no", "aof-everysec", "mixed", "aof-always"),
    "postgres": ("default", "async-commit", "fsync-off"),
    "sqlite": ("wal-full", "wal-normal", "delete-full", "delete-extra"),
}
FAULTS = {
    "kill-engine": "`kill-engine`",
    "slow-fsync": "`slow-fsync`, then a kill",
    "power-loss": "`power-loss`",
}
NAMES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite"}


def command(store: str, seed: int) -> list[str]:
    words = ["recollect", "verify", store]
    for policy in POLICIES[store]:
        words += ["--policy", policy]
    for fault in FAULTS:
        words += ["--fault", fault]
    return [*words, "--seed", str(seed), "--budget", "10m", "--json", "-"]


def cells_of(store: str, seed: int) -> dict[tuple[str, str], dict[str, Any]]:
    words = command(store, seed)
    print(f"$ {' '.join(words)}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [sys.executable, "-m", *words, "--out", out], capture_output=True, text=True, check=False
        )
    if not done.stdout:
        raise SystemExit(done.stderr)
    return {(cell["policy"], cell["fault"]): cell for cell in json.loads(done.stdout)["cells"]}


def told(cell: dict[str, Any]) -> str:
    if cell["status"] == "held":
        return f"0 of {cell['acked']}"
    if cell["status"] in ("unknown", "skipped"):
        return f"{cell['status']}: {cell['reason']}"
    names = ", ".join(anomaly["name"] for anomaly in cell["anomalies"])
    window = f", {cell['loss_window_s']:.1f} s" if cell["loss_window_s"] and "reset" not in names else ""
    mark = "" if cell["status"] == "documented-loss" else " **violated**"
    return f"{cell['lost']} of {cell['acked']} ({names}{window}){mark}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="the engines whose name begins like this")
    arguments = parser.parse_args()
    print(f"| engine, policy | {' | '.join(FAULTS.values())} |")
    print(f"|---|{'---|' * len(FAULTS)}")
    bad = 0
    for store in (store for store in POLICIES if store.startswith(arguments.only)):
        cells = cells_of(store, arguments.seed)
        for policy in POLICIES[store]:
            row = [cells[policy, fault] for fault in FAULTS]
            bad += sum(cell["status"] not in ("held", "documented-loss") for cell in row)
            print(f"| {NAMES[store]} `{policy}` | {' | '.join(told(cell) for cell in row)} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
