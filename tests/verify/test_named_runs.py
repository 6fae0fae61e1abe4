"""Every store of others that has a name and is installed here is opened by it, written to, read back, and judged."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.verify import engines
from recollect.verify.matrix.cell_process import Order
from recollect.verify.matrix.pool import CellPool
from recollect.verify.running.scenario import Scenario
from recollect.verify.target.registry import NamedTarget, named_targets

INSTALLED = {
    name: row
    for name, row in named_targets().items()
    if row.installed is not None and not name.startswith("recollect.")
}
OPERATIONS = 5


@pytest.fixture(scope="module")
def pool() -> Iterator[CellPool]:
    pool = CellPool(1)
    yield pool
    pool.close()


@pytest.mark.filterwarnings("ignore")  # of the frameworks, about themselves
@pytest.mark.parametrize("module", sorted({one for row in INSTALLED.values() for one in row.imports}))
def test_what_is_imported_early_exists(module: str) -> None:
    importlib.import_module(module)


@pytest.mark.parametrize(("name", "row"), INSTALLED.items() or [pytest.param("", None, id="none installed")])
def test_a_tiny_cell(name: str, row: NamedTarget | None, pool: CellPool, tmp_path: Path) -> None:
    if row is None:
        pytest.skip("none of the frameworks is installed here: make named")
    scenario = Scenario(
        target=name,
        engine=row.engine,
        policy=next(iter(engines.policies(row.engine))),
        fault="none",
        variant="one-writer",
        workload="turns",
        writers=1,
        readers=0,
        ops_max=OPERATIONS,
        seed=7,
    )
    result = pool.run(Order(scenario, str(tmp_path)))
    assert result.verdict.acked, result.verdict.reason
    assert result.verdict.status != "unknown", result.verdict.reason
    assert result.release == row.released
    assert set(row.traits) == set(result.traits)
