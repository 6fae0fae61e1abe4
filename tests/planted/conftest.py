"""One kept process that runs the cells of this folder: importing the kit takes as long as most cells do.

Its fork server imports all the stores at once. It would otherwise start anew, with one more, for every store.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.cell_process import Order
from recollect.verify.matrix.pool import CellPool
from recollect.verify.running.faults import fault_named
from recollect.verify.running.scenario import Scenario
from tests.planted.correct.cells import correct_stores
from tests.planted.planted import catalogue


@cache
def imports_of_all() -> frozenset[str]:
    """Without those of Chroma's few stores, which are slow."""
    planted = [store.scenario(f"tests.planted.{name}", seed=7) for name, store in catalogue().items()]
    correct = [cell.scenario(name, seed=7) for name, cells in correct_stores().items() for cell in cells]
    return frozenset(
        module
        for scenario in (*planted, *correct)
        if scenario.engine_kind != "chroma"
        for module in scenario.modules
    )


class Cells:
    def __init__(self) -> None:
        self._pool = CellPool(1)

    def run(self, scenario: Scenario, folder: Path) -> Verdict:
        """Runs one cell; where this machine cannot, the test is skipped with the reason."""
        if (obstacle := fault_named(scenario.fault).obstacle(scenario)) is not None:
            pytest.skip(obstacle)
        preload = tuple(sorted(imports_of_all() | set(scenario.modules)))
        verdict = self._pool.run(Order(scenario, str(folder), preload)).verdict
        if verdict.status == "skipped":
            pytest.skip(verdict.reason or "")
        return verdict

    def close(self) -> None:
        self._pool.close()


@pytest.fixture(scope="session")
def cells() -> Iterator[Cells]:
    kept = Cells()
    yield kept
    kept.close()
