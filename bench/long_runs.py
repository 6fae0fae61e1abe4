"""Does the kit stay as large as it was? Memory and descriptors of the processes that run cells and count them.

    python bench/long_runs.py [CELLS]

Runs the same cell CELLS times (60 by default) in one kept process, with further seeds, as `--repeat` does, and prints
resident memory, open descriptors and threads of both processes after every tenth. Fails if the last third has more
descriptors than the middle third, or its memory grew by more than 5 %.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from recollect.verify.matrix.cell_process import Order
from recollect.verify.matrix.pool import CellPool
from recollect.verify.matrix.repeating import RunTally
from recollect.verify.matrix.results import Results
from recollect.verify.running.scenario import Scenario

GROWTH_MAX = 1.05


def _size(pid: int) -> tuple[int, int, int]:
    """Resident KiB, descriptors, threads."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return int(status["VmRSS"].split()[0]), descriptors, int(status["Threads"])


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def main(cells: int) -> int:
    scenario = Scenario(target="redis", engine="redis", policy="aof-everysec", fault="kill-engine", seed=1)
    pool = CellPool(1)
    folder = Path(tempfile.mkdtemp(prefix="recollect-long-"))
    sizes: list[tuple[int, ...]] = []
    tally: RunTally | None = None
    print("cells   cell process: KiB, descriptors, threads   counting process: KiB, descriptors, threads")
    try:
        for number in range(cells):
            one = msgspec.structs.replace(scenario, seed=1 + number)
            result = pool.run(Order(one, str(folder / "cell")))
            if tally is None:
                tally = RunTally(Results(results=(result,)))
            else:
                tally.add(result)
            shutil.rmtree(folder / "cell", ignore_errors=True)
            runner = next(child for child in _children(os.getpid()))
            sizes.append((*_size(runner), *_size(os.getpid())))
            if number % 10 == 9:
                print(f"{number + 1:5}   " + "  ".join(f"{value:8}" for value in sizes[-1]))
    finally:
        pool.close()
        shutil.rmtree(folder, ignore_errors=True)
    return _judge(sizes)


def _judge(sizes: list[tuple[int, ...]]) -> int:
    third = len(sizes) // 3
    middle, last = sizes[third : 2 * third], sizes[2 * third :]
    grown = []
    for column, what in enumerate(("cell KiB", "cell descriptors", "", "own KiB", "own descriptors", "")):
        before, after = (max(row[column] for row in part) for part in (middle, last))
        most = before * GROWTH_MAX if "KiB" in what else before
        if what and after > most:
            grown.append(f"{what}: {before} in the middle third, {after} in the last")
    print("\n".join(grown) or "constant")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
