"""How often each planted bug is caught: every planted store, its declaring cell, with many seeds.

Usage: python bench/planted.py [--seeds 20] [--first-seed 0] [--workers 2] [NAME …]

Prints caught/runs for each, and for a run that missed what it found instead. A run that crashes or hangs is one that
did not catch. bench/results/planted.json is written after each store, so a run that is cut short keeps what it has;
with names, only theirs are replaced. At least 19 of 20 is the aim for every one.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.planted.planted import Planted, catalogue

from recollect.verify.matrix.cell_process import Order
from recollect.verify.matrix.pool import CellPool
from recollect.verify.matrix.results import Result

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "planted.json"
LEAST = 0.95


def caught(planted: Planted, result: Result) -> bool:
    """As the test suite means it: the status that was declared, under one of the names that were declared."""
    names = {anomaly.name for anomaly in result.verdict.anomalies}
    return result.verdict.status == planted.status and bool(names & set(planted.anomalies))


def instead(result: Result) -> str:
    verdict = result.verdict
    names = ", ".join(sorted({anomaly.name for anomaly in verdict.anomalies}))
    return ": ".join(part for part in (verdict.status, names, verdict.reason or "") if part)


def measure(pool: CellPool, name: str, seeds: range, workers: int) -> dict[str, Any]:
    """All seeds of one store; the next ones run ahead in the processes that are idle."""
    planted = catalogue()[name]
    missed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        orders = [
            Order(
                planted.scenario(f"tests.planted.{name}", seed, path=(str(ROOT),)),
                str(Path(folder) / str(seed)),
            )
            for seed in seeds
        ]
        for number, order in enumerate(orders):
            result = pool.run(order, orders[number + 1 : number + workers])
            if not caught(planted, result):
                missed[str(order.scenario.seed)] = instead(result)
                print(f"  {name}, seed {order.scenario.seed}: {instead(result)}", flush=True)
    return {"caught": len(seeds) - len(missed), "of": len(seeds), "missed": missed}


def write(stores: dict[str, Any]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    short = [name for name, row in stores.items() if row["caught"] < LEAST * row["of"]]
    document = {"stores": len(stores), "short": short, "caught": stores}
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    known = sorted(catalogue())
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no planted store {', '.join(unknown)}; there are {', '.join(known)}")
    names = options.names or known
    stores: dict[str, Any] = {}
    if options.names and RESULTS.exists():
        stores = json.loads(RESULTS.read_text())["caught"]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    pool = CellPool(options.workers)
    try:
        for name in names:
            stores[name] = measure(pool, name, seeds, options.workers)
            print(f"{name:32} {stores[name]['caught']:3} of {options.seeds}", flush=True)
            write(stores)
    finally:
        pool.close()
    short = [name for name in names if stores[name]["caught"] < LEAST * options.seeds]
    print(f"{len(names) - len(short)} of {len(names)} planted stores caught at least 19 times of 20")
    if short:
        print("short:", ", ".join(short))
    sys.exit(1 if short else 0)


if __name__ == "__main__":
    main()
