"""One kept process that runs the cells of this folder: importing the kit takes as long as most cells do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.cell_process import Order
from recollect.verify.matrix.pool import CellPool
from recollect.verify.running.faults import fault_named
from recollect.verify.running.scenario import Scenario


class Cells:
    def __init__(self) -> None:
        self._pool = CellPool(1)

    def run(self, scenario: Scenario, folder: Path) -> Verdict:
        """Runs one cell; where this machine cannot, the test is skipped with the reason."""
        if (obstacle := fault_named(scenario.fault).obstacle(scenario)) is not None:
            pytest.skip(obstacle)
        verdict = self._pool.run(Order(scenario, str(folder))).verdict
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
