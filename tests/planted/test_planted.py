"""Every planted store is caught under its name by the cell it declares, and its twin is not accused by that cell."""

from pathlib import Path

import pytest

from tests.planted.conftest import Cells
from tests.planted.planted import catalogue, told

CATALOGUE = catalogue()


@pytest.mark.parametrize("name", CATALOGUE)
def test_it_is_caught(name: str, cells: Cells, tmp_path: Path) -> None:
    planted = CATALOGUE[name]
    verdict = cells.run(planted.scenario(f"tests.planted.{name}", seed=7), tmp_path)
    assert planted.catches(verdict), told(verdict)


@pytest.mark.parametrize("name", CATALOGUE)
def test_its_twin_is_not_accused(name: str, cells: Cells, tmp_path: Path) -> None:
    planted = CATALOGUE[name]
    verdict = cells.run(planted.scenario(f"tests.planted.{name}", seed=7, twin=True), tmp_path)
    assert planted.clears(verdict), told(verdict)
