"""What each setting loses: docs/losses.md, as `recollect verify` measures it.

For each row one command, which is printed and can be repeated by hand; its JSON document is the row. The figures are
kept in bench/results/losses.json, from which the page is made; rows that were not run again keep theirs.

    python bench/losses.py [--seed 7] [--only Redis]
    python bench/losses.py --page       only the page
    python bench/losses.py --take FILE  cells from a document that `recollect verify --json` has written
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FAULTS = ("restart", "kill-engine", "slow-fsync", "power-loss")
_OF_ALL = ("node-kill", "kill-restart", "pause", "isolate-primary", "promoted-behind@", "restart-all")
OF_CLUSTER = (
    *_OF_ALL,
    "promoted-behind@one-behind",
    "failover@",
    "failover@force",
    "failover@takeover",
    "reshard@",
)
OF_SENTINEL = (*_OF_ALL, "promoted-behind@one-behind", "two-primaries@", "isolate-sentinels")
OF_STANDBYS = (
    *_OF_ALL,
    "failover@",
    "failover@force",
    "promoted-behind@one-behind",
    "two-primaries@",
    "two-primaries@unfenced",
)
SEEN = frozenset({"non-monotonic-read", "reorder"})
"""A write that the old primary showed and nobody acknowledged: gone with it, or written again by whoever retried."""
OUTDATED = frozenset({"stale-read", "own-write-missing"})
"""What was acknowledged is there; the old primary, which was asked for it, did not have it."""
RESULTS = Path(__file__).parent / "results" / "losses.json"
PAGE = Path(__file__).parent.parent / "docs" / "losses.md"
BUDGET = "10m"
"""For a row. The usual minute may be too short for so many faults, and what does not fit into it is skipped."""
PAUSING = Path(__file__).with_name("no-appendfsync-on-rewrite.conf")


@dataclass(frozen=True)
class Row:
    name: str
    words: tuple[str, ...]
    """What is put to the test."""
    faults: tuple[str, ...] = FAULTS
    ours: bool = True
    """A store of ours: nothing but a documented loss is expected of it."""
    several: bool = False
    """Several servers: each variant of a fault is told by itself."""


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
    yield from groups()


def groups() -> Iterator[Row]:
    """Engines of several servers."""

    def on(engine: str, policy: str, store: str) -> tuple[str, ...]:
        return store, "--engine", engine, "--policy", policy

    for engine, name, faults in (
        ("redis-cluster", "Redis Cluster", OF_CLUSTER),
        ("redis-sentinel", "Redis Sentinel", OF_SENTINEL),
    ):
        for policy in ("none", "min-replicas-lag-10", "min-replicas-lag-1", "aof-everysec"):
            yield Row(f"{name} `{policy}`", on(engine, policy, "redis"), faults, several=True)
    for engine, name, count, faults in (
        ("redis-cluster", "Redis Cluster", 1, OF_CLUSTER),
        ("redis-sentinel", "Redis Sentinel", 1, OF_SENTINEL),
        ("redis-sentinel", "Redis Sentinel", 2, OF_SENTINEL),
    ):
        store = f"recollect.verify.builtin:redis_waits_for_{count}"
        yield Row(
            f"{name} `aof-everysec`, `replicas={count}`",
            on(engine, "aof-everysec", store),
            faults,
            several=True,
        )
    moved = on("valkey-cluster", "aof-everysec", "redis")
    yield Row("Valkey Cluster `aof-everysec`", moved, (*OF_CLUSTER, "reshard@at-once"), several=True)
    for policy in ("asynchronous", "any-1", "first-2"):
        yield Row(
            f"PostgreSQL with two standbys, `{policy}`",
            on("postgres-ha", policy, "postgres"),
            OF_STANDBYS,
            several=True,
        )


def words_of(row: Row, seed: int) -> list[str]:
    faults = [word for fault in row.faults for word in ("--fault", fault)]
    return ["recollect", "verify", *row.words, *faults, "--seed", str(seed), "--budget", BUDGET]


def cells_of(row: Row, seed: int) -> dict[str, dict[str, Any]]:
    """By fault; of several workloads the one that fared worst."""
    words = [*words_of(row, seed), "--json", "-"]
    print(f"$ {' '.join(words)}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", *words, "--out", out]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return worst_of(row, json.loads(done.stdout)["cells"])


def worst_of(row: Row, cells: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    by_fault: dict[str, dict[str, Any]] = {}
    for cell in cells:
        fault = cell["fault"]
        if row.several and cell["variant"]:
            fault = f"{fault}@{cell['variant']}"
        by_fault[fault] = max(by_fault.get(fault, cell), cell, key=_badness)
    return by_fault


def taken(document: Path) -> Iterator[tuple[Row, dict[str, dict[str, Any]]]]:
    """The rows that the document has cells of."""
    cells = json.loads(document.read_text())["cells"]
    for row in groups():
        target, _, engine, _, policy = row.words
        mine = [
            cell
            for cell in cells
            if (cell["target"], cell["engine"], cell["policy"]) == (target, engine, policy)
            and {cell["fault"], f"{cell['fault']}@{cell['variant']}"} & {*row.faults}
        ]
        if mine:
            yield row, worst_of(row, mine)


def _badness(cell: dict[str, Any]) -> tuple[bool, bool, float]:
    share = cell["lost"] / cell["acked"] if cell["acked"] else 0.0
    return cell["status"] not in ("held", "documented-loss"), cell["status"] != "held", share


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
    if (
        cell["status"] == "documented-loss"
        and not {one["name"] for one in cell["anomalies"]} - SEEN - OUTDATED
    ):
        parts = [f"0 of {cell['acked']}"]
        for why, names_meant in (
            ("seen for a while, and never acknowledged", SEEN),
            ("read from the old primary, which did not have it", OUTDATED),
        ):
            each = [one for one in cell["anomalies"] if one["name"] in names_meant]
            parts += [f"{why}: {_counts(each)}"] if each else []
        return "; ".join(parts)
    window_s = cell["loss_window_s"] or cell.get("loss_after_s")
    window = f", {window_s:.1f} s" if window_s and "reset" not in names else ""
    mark = "" if cell["status"] == "documented-loss" else " **violated**"
    affected = cell["lost"] or cell["anomalies"][0]["count"]
    return f"{affected} of {cell['acked']} ({names}{window}){mark}"


def _counts(anomalies: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['count']} × {one['name']}" for one in anomalies)


HEAD = """\
# What each setting loses

Measured, beside what the engine's own documentation says. A store of ours writes to the engine, the fault strikes in
the middle, the engine comes back, and everything that had been acknowledged is looked for. Made by
`python bench/losses.py`; each row is one run with one seed, on one machine: how many messages were lost
depends on its speed, whether any can be lost does not.

- `restart` stops the server as an operator does. `kill-engine` is `kill -9`: what was handed to the operating system
  survives it.
- `slow-fsync` holds fsync back and then kills. `power-loss` also takes away everything that was never synced; see
  [power loss](power-loss.md).
- The faults of several servers, from `node-kill` on, are in [engines](engines.md). `replicas=1` and `replicas=2`: the
  store waits for so many copies before it acknowledges. `min-replicas-lag-10` and `min-replicas-lag-1`: without
  persistence, but a primary that has heard of no replica for so many seconds takes no writes.
- The seconds behind a loss: how far it reaches back from the fault; where a server went on that did not count any
  more, for how long after the fault.

A loss that the documentation allows is one that you chose with the setting; **violated** is one that it does not allow.

"""


def overview(kept: dict[str, dict[str, Any]]) -> str:
    """The settings of single servers in one table, each with a link to its figures."""
    lines = [f"| | {' | '.join(f'`{fault}`' for fault in FAULTS)} |\n", "|---" * (len(FAULTS) + 1), "|\n"]
    for name, row in kept.items():
        if set(row["cells"]) <= set(FAULTS):
            anchor = re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-")
            cells = [shortly(row["cells"].get(fault, {"told": "–"})["told"]) for fault in FAULTS]
            lines.append(f"| [{name}](#{anchor}) | {' | '.join(cells)} |\n")
    return "## One server, at a glance\n\n" + "".join(lines) + "\n"


def shortly(figures: str) -> str:
    """`nothing`, `everything` or a share, of what was told about a cell."""
    found = re.match(r"(\d+) of (\d+)", figures)
    if found is None:
        return figures
    lost, acknowledged = int(found[1]), int(found[2])
    if not lost:
        return "nothing"
    share = "everything" if lost == acknowledged else found[0]
    return f"**{share}, violated**" if "**violated**" in figures else share


def page(kept: dict[str, dict[str, Any]]) -> str:
    """The page, from the figures of all rows."""
    parts = [HEAD, overview(kept)]
    for name, row in kept.items():
        parts += [f"## {name}\n\n", "| fault | lost | what its documentation says |\n|---|---|---|\n"]
        for fault in sorted(row["cells"], key=lambda one: FAULTS.index(one) if one in FAULTS else 99):
            cell = row["cells"][fault]
            parts.append(f"| `{fault}` | {cell['told']} | {cell['promise']} |\n")
        parts.append(f"\n{row['version']}, recorded {row['recorded']}: `{row['command']}`\n\n")
    return "".join(parts).rstrip("\n") + "\n"


def kept_row(row: Row, cells: dict[str, dict[str, Any]], seed: int) -> dict[str, Any]:
    first = next(iter(cells.values()))
    shown = {
        fault: {"told": told(cell), "promise": cell["promise"] or "nothing is lost"}
        for fault, cell in cells.items()
    }
    return {
        "version": f"{first['engine']} {first['engine_version']}",
        "recorded": f"{datetime.now(UTC):%Y-%m-%d}",
        "command": " ".join(words_of(row, seed)),
        "cells": shown,
    }


def joined(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """A row of which only some cells were run again."""
    if before is None:
        return now
    recorded = " and ".join(sorted({before["recorded"], now["recorded"]}))
    return {**now, "recorded": recorded, "cells": before["cells"] | now["cells"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="the rows whose name begins like this")
    parser.add_argument("--take", type=Path, metavar="FILE", help="cells of several servers from a document")
    parser.add_argument("--page", action="store_true", help="write docs/losses.md from what was measured")
    arguments = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.page:
        PAGE.write_text(page(kept))
        return 0
    print(f"| engine, policy | {' | '.join(FAULTS)} |")
    bad = 0
    measured = (
        ((row, cells_of(row, arguments.seed)) for row in rows() if row.name.startswith(arguments.only))
        if arguments.take is None
        else taken(arguments.take)
    )
    for row, cells in measured:
        expected = ("held", "documented-loss") if row.ours else ("held", "documented-loss", "violated")
        bad += sum(cell["status"] not in expected for cell in cells.values())
        print(f"| {row.name} | {' | '.join(told(cell) for cell in cells.values())} |", flush=True)
        before = kept.get(row.name) if arguments.take else None
        kept[row.name] = joined(before, kept_row(row, cells, arguments.seed))
        order = [row.name for row in rows()]
        kept = {name: kept[name] for name in order if name in kept}
        RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(kept))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
