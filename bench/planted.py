"""How often each planted bug is caught, and how often anybody who is right is accused, with many seeds.

Usage: python bench/planted.py [--seeds 20] [--first-seed 0] [--workers 2] [--again] [--default …] [NAME …]

Three counts, each in the cell that the store declares: every planted store is to be caught, at least 19 of 20 times;
its twin without the bug, and every correct store, is never to be accused. For a run that went otherwise it prints what
it said instead; one that crashes or hangs has caught nothing and accused nobody. A correct store that is known to be
accused today is counted like the others, and marked.

With --default it is what a user sees who names nothing but the store: see planted_default.py.

bench/results/planted.json is written after each row, so a run that is cut short keeps what it has, and the next one
goes on from there: what went well with as many seeds is not run again unless it is named, or --again is given.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.planted.correct.cells import Cell, correct_stores
from tests.planted.planted import catalogue, told

import planted_default
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.cell_process import Order
from recollect.verify.matrix.pool import CellPool
from recollect.verify.running.scenario import Scenario

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "planted.json"
LEAST = 0.95
PATH = (str(ROOT),)
SIDES = ("caught", "accused", "correct")
"""The tables of the results: planted stores, their twins, correct stores."""

Row = dict[str, Any]


class Bench:
    def __init__(self, seeds: range, workers: int) -> None:
        self.seeds = seeds
        self.workers = workers
        self.pool = CellPool(workers)

    def planted(self, name: str) -> tuple[Row, Row]:
        """The store, and its twin."""
        store = catalogue()[name]
        module = f"tests.planted.{name}"
        missed = self._odd(
            f"{name}",
            lambda seed: store.scenario(module, seed, PATH),
            lambda verdict: not store.catches(verdict),
        )
        twins = self._odd(
            f"{name}, its twin",
            lambda seed: store.scenario(module, seed, PATH, twin=True),
            lambda verdict: not store.clears(verdict),
        )
        return {
            "caught": len(self.seeds) - len(missed),
            "of": len(self.seeds),
            "missed": missed,
        }, self._accused(twins)

    def correct(self, name: str, cell: Cell) -> Row:
        said = self._odd(
            title_of(name, cell),
            lambda seed: cell.scenario(name, seed, PATH),
            lambda verdict: verdict.status in ("violated", "unknown"),
        )
        return self._accused(said) | ({"known": cell.accused} if cell.accused else {})

    def _accused(self, said: dict[str, str]) -> Row:
        accused = [text for text in said.values() if text.startswith("violated")]
        return {"accused": len(accused), "of": len(self.seeds), "said": said}

    def _odd(
        self, title: str, scenario: Callable[[int], Scenario], is_odd: Callable[[Verdict], bool]
    ) -> dict[str, str]:
        """What the runs said that did not go as they should; the next ones run ahead in processes that are idle."""
        said: dict[str, str] = {}
        with tempfile.TemporaryDirectory() as folder:
            orders = [Order(scenario(seed), str(Path(folder) / str(seed))) for seed in self.seeds]
            for number, order in enumerate(orders):
                verdict = self.pool.run(order, orders[number + 1 : number + self.workers]).verdict
                if is_odd(verdict):
                    said[str(order.scenario.seed)] = told(verdict)
                    print(f"  {title}, seed {order.scenario.seed}: {told(verdict)}", flush=True)
        return said


def title_of(name: str, cell: Cell) -> str:
    return f"{name}, {cell.policy}, {cell.fault}, {cell.workload}"


def cells_of(name: str) -> dict[str, Cell]:
    """The cells of a correct store; `explore` has one run and no seeds, and is the tests' own."""
    cells = correct_stores().get(name, ())
    return {title_of(name, cell): cell for cell in cells if cell.fault != "explore"}


def write(tables: dict[str, dict[str, Row]]) -> None:
    """Rows of stores and cells that are no more are left out."""
    kept = only(tables, {*catalogue(), *correct_stores()})
    cells = {title for name in correct_stores() for title in cells_of(name)}
    kept["correct"] = {title: row for title, row in kept["correct"].items() if title in cells}
    document = {"stores": len(kept["caught"]), "short": short(kept), "wrongly_accused": wronged(kept), **kept}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")


def only(tables: dict[str, dict[str, Row]], names: set[str]) -> dict[str, dict[str, Row]]:
    """The rows of these stores; a title begins with the store's name."""
    return {
        side: {title: row for title, row in table.items() if title.partition(",")[0] in names}
        for side, table in tables.items()
    }


def is_good(row: Row, seeds: int) -> bool:
    """Whether it has as many seeds, and went well."""
    return row["of"] >= seeds and not row.get("accused") and row.get("caught", seeds) >= LEAST * row["of"]


def is_done(tables: dict[str, dict[str, Row]], name: str, seeds: int) -> bool:
    """Whether all of its rows are there and good."""
    rows = [tables["correct"].get(title) for title in cells_of(name)]
    if name in catalogue():
        rows += [tables["caught"].get(name), tables["accused"].get(name)]
    return all(row is not None and is_good(row, seeds) for row in rows)


def short(tables: dict[str, dict[str, Row]]) -> list[str]:
    """Planted stores that are not caught often enough."""
    return [name for name, row in tables["caught"].items() if row["caught"] < LEAST * row["of"]]


def wronged(tables: dict[str, dict[str, Row]]) -> list[str]:
    """Twins and correct stores that were accused, however rarely."""
    twins = [f"{name}, its twin" for name, row in tables["accused"].items() if row["accused"]]
    return twins + [title for title, row in tables["correct"].items() if row["accused"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--default", action="store_true", help="as a user gives the command")
    parser.add_argument("--budget", type=int, default=60, help="seconds of a default run")
    parser.add_argument(
        "--only", action="append", choices=planted_default.SIDES, help="one side of default runs"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="also what is there already; of default runs, those that went wrong",
    )
    options = parser.parse_args()
    known = [*sorted(correct_stores()), *sorted(catalogue())]
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no planted or correct store {', '.join(unknown)}; there are {', '.join(known)}")
    names = options.names or known
    if options.default:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        sys.exit(
            planted_default.default_runs(
                *(names, seeds, options.budget, options.only or []),
                is_again=options.again,
                workers=options.workers,
            )
        )
    tables: dict[str, dict[str, Row]] = {side: {} for side in SIDES}
    if RESULTS.exists():
        tables |= {side: table for side, table in json.loads(RESULTS.read_text()).items() if side in SIDES}
    if not options.names and not options.again:
        names = [name for name in names if not is_done(tables, name, options.seeds)]
    print(f"{len(names)} stores to do", flush=True)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    bench = Bench(seeds, options.workers)
    try:
        for name in names:
            measure(bench, name, tables, is_again=bool(options.names) or options.again)
    finally:
        bench.pool.close()
    mine = only(tables, set(options.names or known))
    found, accused = short(mine), wronged(mine)
    print(
        f"caught too rarely: {', '.join(found) or 'none'}\naccused although right: {', '.join(accused) or 'none'}"
    )
    sys.exit(1 if found or accused else 0)


def measure(bench: Bench, name: str, tables: dict[str, dict[str, Row]], *, is_again: bool) -> None:
    """Writes each row as soon as it is known."""
    count = len(bench.seeds)
    if name in catalogue():
        row, twin = bench.planted(name)
        tables["caught"][name], tables["accused"][name] = row, twin
        write(tables)
        print(
            f"{name:32} caught {row['caught']:3} of {count}, its twin accused {twin['accused']:3} of {count}",
            flush=True,
        )
    for title, cell in cells_of(name).items():
        before = tables["correct"].get(title)
        if is_again or before is None or not is_good(before, count):
            row = tables["correct"][title] = bench.correct(name, cell)
            write(tables)
            known = f" (known: {row['known']})" if "known" in row else ""
            print(f"{title:48} accused {row['accused']:3} of {count}{known}", flush=True)


if __name__ == "__main__":
    main()
