"""How often each planted bug is caught: every planted store, its declaring cell, with many seeds.

Usage: python bench/planted.py [--seeds 20] [--workers 2] [NAME …]

Prints caught/runs for each and writes bench/results/planted.json. At least 19 of 20 is the aim for every one.
"""

import argparse
import json
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.planted.planted import catalogue

from recollect.verify.runner import Run

RESULTS = Path(__file__).parent / "results" / "planted.json"


def caught(name: str, seed: int) -> bool:
    planted = catalogue()[name]
    with tempfile.TemporaryDirectory() as folder:
        verdict = Run(planted.scenario(f"tests.planted.{name}", seed), Path(folder)).execute()
    names = {anomaly.name for anomaly in verdict.anomalies}
    return verdict.status == planted.status and bool(names & set(planted.anomalies))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    names = options.names or sorted(catalogue())
    counts: dict[str, int] = {}
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for name in names:
            runs = pool.map(caught, [name] * options.seeds, range(options.seeds))
            counts[name] = sum(runs)
            print(f"{name:32} {counts[name]:3} of {options.seeds}", flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"seeds": options.seeds, "caught": counts}, indent=2) + "\n")
    short = [name for name, count in counts.items() if count < 0.95 * options.seeds]
    print(f"{len(names) - len(short)} of {len(names)} planted stores caught at least 19 times of 20")
    if short:
        print("short:", ", ".join(short))


if __name__ == "__main__":
    main()
