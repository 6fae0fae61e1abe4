"""What the search for interleavings finds, how fast, and whether what it finds comes again.

`python bench/interleavings.py [WORD] [--seconds 10] [--replays 20] [--out FILE]` explores every planted race and every
correct store of tests/interleavings/cells.py, each in a process and on an engine of its own. A race must be found under
its name within the seconds, and its schedule, replayed on fresh stores, must show the same every time; a correct store
must not be accused. Otherwise the exit code is 1. `--stress` runs each planted store of tasks beside it as plain
concurrent code, without control, for the same time. Rates are given by the clock, and by the CPU time of the explorer,
its clients and the engine, which says more on a machine with other work. `--only planted` leaves out the correct ones,
`--only correct` the others.

`--schedules 10000` runs correct stores on Redis and PostgreSQL until there were so many, and counts those that went
differently from the run they repeat: there must be none. Runs in which the engine gave a lock to another than before
are counted beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.interleavings.cells import CORRECT, PLANTED, Cell

from recollect.verify import engines
from recollect.verify.explore.interleavings.results import InterleavingsFound
from recollect.verify.target.login import logged_in
from recollect.verify.target.marked_text import mark
from recollect.verify.target.pipe import Said
from recollect.verify.target.returned import elements
from recollect.verify.target.target import Target, prepare_of

STRESS_CLIENTS = 8


def explored(cell: Cell, seconds: float, replays: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        began = time.perf_counter()
        found = cell.explore(Path(folder), seconds, replays).found
        row = measured(cell, found) | {"total_s": round(time.perf_counter() - began, 2)}
    if found.failure is None:
        return row | {"good": not cell.names and found.trouble is None}
    row["replayed"] = f"{found.failure.confirmed} of {replays}"
    named = bool(set(row["names"]) & set(cell.names))
    return row | {"good": named and found.failure.confirmed == replays}


def measured(cell: Cell, found: InterleavingsFound) -> dict[str, Any]:
    failure = found.failure
    schedules = sum(one.schedules for one in found.programs)
    busy_s = sum(one.seconds for one in found.programs)
    cpu_s = sum(one.cpu_s for one in found.programs)
    return {
        "cell": cell.title,
        "engine": cell.engine,
        "planted": bool(cell.names),
        "status": found.status,
        "reason": found.reason,
        "names": list(failure.names) if failure else [],
        "program": failure.program if failure else "",
        "schedule": failure.schedule if failure else "",
        "preemptions": failure.preemptions if failure else None,
        "found_at": failure.found_at if failure else None,
        "found_s": round(busy_s, 2) if failure else None,
        "schedules": schedules,
        "per_second": round(schedules / busy_s) if busy_s else 0,
        "per_cpu_second": round(schedules / cpu_s) if cpu_s else 0,
        "redundant": sum(one.redundant for one in found.programs),
        "diverged": sum(one.diverged for one in found.programs),
        "repeated": sum(one.repeated for one in found.programs),
        "picked_otherwise": sum(one.picked_otherwise for one in found.programs),
        "unfinished": sum(one.unfinished for one in found.programs),
        "coverage": found.coverage,
    }


# ---- the same stores without control


async def _stressed(cell: Cell, endpoint: engines.Endpoint, seconds: float) -> int | None:
    """How many rounds of concurrent appends until a message is missing or doubled; None if none was."""
    target = Target(cell.target, endpoint)
    prepare = prepare_of(cell.target)
    if prepare is not None and asyncio.iscoroutine(made := prepare(endpoint)):
        await made
    await target.open()
    end, rounds = time.perf_counter() + seconds, 0
    try:
        while time.perf_counter() < end:
            rounds += 1
            session = f"stress-{os.getpid()}-{rounds}"
            said = [[Said(n, mark(n, f"message {n}"))] for n in range(STRESS_CLIENTS)]
            try:
                work = (target.append(session, one, f"turn-{rounds}-{one[0].number}", None) for one in said)
                await asyncio.gather(*work)
                read = elements((await target.read(session, None, None))[0]).numbers
            except Exception:
                return rounds
            if sorted(read) != list(range(STRESS_CLIENTS)):
                return rounds
    finally:
        await target.close()
    return None


def stressed(cell: Cell, seconds: float) -> int | None:
    engine = engines.create(cell.engine)
    try:
        endpoint = engine.start()
        with logged_in(endpoint):
            return asyncio.run(_stressed(cell, endpoint, seconds))
    finally:
        engine.close()


# ---- what is printed


def shown(row: dict[str, Any]) -> str:
    what = (
        f"{', '.join(row['names'])} in {row['program']!r} at {row['found_at']}, {row['found_s']} s, "
        f"{row['preemptions']} preemptions, replayed {row.get('replayed', '-')}"
        if row["names"]
        else f"{row['status']} {row['reason'] or row['coverage']}"
    )
    rate = (
        f"{row['schedules']:6} schedules, {row['per_second']:4}/s, {row['per_cpu_second']:4}/CPU s, "
        f"{row['repeated']} went differently, {row['diverged']} each time"
    )
    return f"{'✓' if row['good'] else '✗'} {row['cell']:48} {rate}  {what}"


def totals(rows: list[dict[str, Any]]) -> list[str]:
    planted = [row for row in rows if row["planted"]]
    correct = [row for row in rows if not row["planted"]]
    found = [row for row in planted if row["names"]]
    lines = [
        f"planted: {sum(row['good'] for row in planted)} of {len(planted)} found under their name and replayed",
        f"correct: {sum(row['good'] for row in correct)} of {len(correct)} not accused",
    ]
    if found:
        lines.append(
            f"found at schedule {statistics.median(row['found_at'] for row in found):g} (median), "
            f"{max(row['found_at'] for row in found)} (worst); after "
            f"{statistics.median(row['found_s'] for row in found):.1f} s (median), "
            f"{max(row['found_s'] for row in found):.1f} s (worst)"
        )
    for way in ("tasks", "tasks-cancel", "processes", "threads"):
        for engine in ("redis", "postgres", "sqlite"):
            those = [r for r in correct if r["cell"].endswith(f"-{way}") and r["engine"] == engine]
            if those:
                runs = sum(row["schedules"] for row in those)
                rate = statistics.median(row["per_second"] for row in those)
                by_cpu = statistics.median(row["per_cpu_second"] for row in those)
                redundant = sum(row["redundant"] for row in those) / max(1, runs)
                lost = sum(row["repeated"] for row in those)
                lines.append(
                    f"{way} on {engine}: {rate:g}/s, {by_cpu:g} per CPU second, {redundant:.0%} redundant, "
                    f"{lost} of {runs} went differently"
                )
    return lines


# ---- whether schedules go the same way twice


def repeated(wanted: int, seconds: float, word: str) -> list[dict[str, Any]]:
    """Explores correct stores on Redis and PostgreSQL, a while each, until there were so many schedules."""
    cells = [cell for cell in CORRECT if cell.engine in ("redis", "postgres") and cell.how != "threads"]
    cells = [cell for cell in cells if word in f"{cell.title} {cell.engine}"]
    rows: list[dict[str, Any]] = []
    for cell in itertools.islice(itertools.cycle(cells), 10 * len(cells)):
        if sum(row["schedules"] for row in rows) >= wanted:
            break
        row = explored(cell, seconds, 0)
        rows.append(row | {"good": row["good"] and not row["repeated"]})
        print(shown(rows[-1]), flush=True)
    return rows


def repeated_totals(rows: list[dict[str, Any]]) -> list[str]:
    count = {name: sum(row[name] for row in rows) for name in ("schedules", "repeated", "picked_otherwise")}
    return [
        f"{count['schedules']} schedules of correct stores: {count['repeated']} went differently when repeated; "
        f"{count['picked_otherwise']} tried again because the engine picked otherwise"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--replays", type=int, default=20)
    parser.add_argument("--only", choices=("planted", "correct"))
    parser.add_argument("--stress", action="store_true")
    parser.add_argument("--schedules", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = repeated(options.schedules, options.seconds, options.word) if options.schedules else []
    for cell in () if options.schedules else (*PLANTED, *CORRECT):
        if options.word not in f"{cell.title} {cell.engine}":
            continue
        if options.only is not None and (options.only == "planted") != bool(cell.names):
            continue
        row = explored(cell, options.seconds, options.replays)
        if options.stress and cell.names and cell.how == "tasks" and not cell.cancel:
            row["stress_rounds"] = stressed(cell, options.seconds)
        rows.append(row)
        print(shown(row), flush=True)
    lines = repeated_totals(rows) if options.schedules else totals(rows)
    print("\n".join(lines))
    if options.out is not None:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        about = {"commit": commit.stdout.strip(), "python": platform.python_version(), "cpus": os.cpu_count()}
        text = json.dumps({**about, "seconds": options.seconds, "totals": lines, "cells": rows}, indent=1)
        options.out.write_text(text + "\n")
    return 0 if all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
