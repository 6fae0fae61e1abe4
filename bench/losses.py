"""What each setting loses: the table in docs/power-loss.md, as `recollect verify` itself measures it.

For each row one command, which is printed and can be repeated by hand; its JSON document is the row.

    python bench/losses.py [--seed 7] [--only Redis]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = ("kill-engine", "slow-fsync", "power-loss")
HEADS = ("`kill-engine`", "`slow-fsync`, then a kill", "`power-loss`")
PAUSING = Path(__file__).with_name("no-appendfsync-on-rewrite.conf")


@dataclass(frozen=True)
class Row:
    name: str
    words: tuple[str, ...]
    """What is put to the test."""
    faults: tuple[str, ...] = COLUMNS
    ours: bool = True
    """A store of ours: nothing but a documented loss is expected of it."""


def rows() -> Iterator[Row]:
    for policy in ("none", "rdb", "aof-no", "aof-everysec", "mixed", "aof-always"):
        yield Row(f"Redis `{policy}`", ("redis", "--policy", policy))
        if policy in ("aof-no", "aof-everysec"):
            yield Row(
                f"Redis `{policy}`, zeros at the end", ("redis", "--policy", policy), ("power-loss@zeros",)
            )
    yield Row(
        "Redis `aof-always` and `no-appendfsync-on-rewrite yes`, beside a snapshot",
        ("redis", "--engine-config", os.path.relpath(PAUSING)),
        ("kill-engine@bgsave", "slow-fsync", "power-loss@bgsave"),
        ours=False,
    )
    waiting = ("recollect.verify.builtin:redis_fsynced", "--engine", "valkey", "--policy", "aof-everysec")
    yield Row("Valkey `aof-everysec`, the store waits for the fsync", waiting)
    for policy in ("default", "async-commit", "fsync-off"):
        yield Row(f"PostgreSQL `{policy}`", ("postgres", "--policy", policy))
    for policy in ("wal-full", "wal-normal", "delete-full", "delete-extra"):
        yield Row(f"SQLite `{policy}`", ("sqlite", "--policy", policy))
    plain = ("recollect.recall.targets:plain_chroma", "--engine", "chroma", "--policy", "server")
    yield Row("Chroma `server`, documents", plain)
    flushes = ("kill-engine@flush", "power-loss@flush")
    yield Row("Chroma `server`, vector index after a flush", plain, flushes, ours=False)


def cells_of(row: Row, seed: int) -> dict[str, dict[str, Any]]:
    """By fault."""
    words = ["recollect", "verify", *row.words]
    for fault in row.faults:
        words += ["--fault", fault]
    words += ["--seed", str(seed), "--budget", "10m", "--json", "-"]
    print(f"$ {' '.join(words)}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", *words, "--out", out]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return {cell["fault"]: cell for cell in json.loads(done.stdout)["cells"]}


def told(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    if cell["status"] == "held":
        return f"0 of {cell['acked']}"
    if cell["status"] in ("unknown", "skipped"):
        return f"{cell['status']}: {cell['reason']}"
    names = ", ".join(anomaly["name"] for anomaly in cell["anomalies"])
    if "refuses-to-start" in names:
        return names
    window = f", {cell['loss_window_s']:.1f} s" if cell["loss_window_s"] and "reset" not in names else ""
    mark = "" if cell["status"] == "documented-loss" else " **violated**"
    affected = cell["lost"] or cell["anomalies"][0]["count"]
    return f"{affected} of {cell['acked']} ({names}{window}){mark}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="the rows whose name begins like this")
    arguments = parser.parse_args()
    print(f"| engine, policy | {' | '.join(HEADS)} |")
    print(f"|---|{'---|' * len(HEADS)}")
    bad = 0
    for row in (row for row in rows() if row.name.startswith(arguments.only)):
        cells = cells_of(row, arguments.seed)
        expected = ("held", "documented-loss") if row.ours else ("held", "documented-loss", "violated")
        bad += sum(cell["status"] not in expected for cell in cells.values())
        print(f"| {row.name} | {' | '.join(told(cells.get(fault)) for fault in COLUMNS)} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
