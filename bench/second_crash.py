"""How often a store that rewrites its data in place when it is opened is caught by `recollect explore --depth 2`, and
how often its twin, which does it aside or in one transaction, is accused.

An exploration has no seed: each round records a run of another length, and explores it in both modes at level 1.

    python bench/second_crash.py [--rounds 20] [--only sqlite]

bench/results/second-crash.json has the counts, by engine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from recollect.verify.disk import MODES
from recollect.verify.disk.exploring import ExplorePlan
from recollect.verify.disk.recovery import home, never_read
from recollect.verify.explore import exploration
from recollect.verify.explore.exploration import TargetCheck
from recollect.verify.explore.resuming import explore_run
from recollect.verify.explore.second_crash import explore_recoveries

RESULTS = Path(__file__).parent / "results" / "second-crash.json"
STORES = "tests.faults.opening_rewrites"
PAIRS = {
    "sqlite": ("wal-full", "in_place", "aside"),
    "redis": ("aof-always", "list_in_steps", "list_at_once"),
    "postgres": ("default", "rows_in_steps", "rows_at_once"),
}
WORKERS = 2


def violated(target: str, engine: str, policy: str, messages: int) -> dict[str, int]:
    """What one exploration of depth 2 says, of both modes together."""
    total = {"states": 0, "violated": 0, "first_violated": 0, "unsure": 0}
    with tempfile.TemporaryDirectory() as made:
        folder, place = Path(made), home()
        run = exploration.record(target, engine, policy, messages=messages, folder=folder)

        def check() -> TargetCheck:
            return TargetCheck(run, folder / "target.log", place)

        for mode in MODES:
            plan = ExplorePlan(mode, 1, WORKERS, None, run.about.start, never_read(engine))
            first = explore_run(run, folder, plan, check)
            second, _ = explore_recoveries(run, folder, plan, check, place)
            total["first_violated"] += first.tally.violated
            total["states"] += second.tally.judged
            total["violated"] += second.tally.violated
            total["unsure"] += second.tally.unsure + first.tally.unsure
    return total


def measured(engine: str, rounds: int) -> dict[str, Any]:
    policy, planted, twin = PAIRS[engine]
    counts = dict.fromkeys(
        ("caught", "accused", "shown_by_one_crash", "unsure", "planted_states", "twin_states"), 0
    )
    began = time.monotonic()
    for messages in range(2, 2 + rounds):
        caught = violated(f"{STORES}:{planted}", engine, policy, messages)
        cleared = violated(f"{STORES}:{twin}", engine, policy, messages)
        counts["caught"] += caught["violated"] > 0
        counts["accused"] += cleared["violated"] > 0
        counts["shown_by_one_crash"] += caught["first_violated"] + cleared["first_violated"] > 0
        counts["unsure"] += caught["unsure"] + cleared["unsure"] > 0
        counts["planted_states"] += caught["states"]
        counts["twin_states"] += cleared["states"]
        print(f"{engine}, {messages} messages: {caught['violated']} of {caught['states']} second crash states violated;"
              f" its twin {cleared['violated']} of {cleared['states']}", flush=True)  # fmt: skip
    return {"rounds": rounds, **counts, "took_s": round(time.monotonic() - began, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=sorted(PAIRS))
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for engine in [options.only] if options.only else PAIRS:
        results[engine] = row = measured(engine, options.rounds)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        print(f"{engine}: caught {row['caught']} of {row['rounds']}, its twin accused {row['accused']}")
    return 0 if all(row["caught"] == row["rounds"] and not row["accused"] for row in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
