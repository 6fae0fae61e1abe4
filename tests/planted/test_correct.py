"""Nobody is accused who is right: correct stores of third parties, in the cells that once accused them or might."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recollect.cli import build
from tests.planted.conftest import Cells
from tests.planted.correct.cells import Cell, correct_stores, target
from tests.planted.planted import told


class Accused(AssertionError):
    """The verdict is `violated`; whatever else goes wrong is no accusation, and not what is expected."""


def cells_that(*, explore: bool) -> list[Any]:
    return [
        pytest.param(
            name,
            cell,
            id=f"{name}-{cell.policy}-{cell.fault}-{cell.workload}",
            marks=[pytest.mark.xfail(raises=Accused, strict=True, reason=cell.accused)]
            if cell.accused
            else [],
        )
        for name, cells in correct_stores().items()
        for cell in cells
        if (cell.fault == "explore") is explore
    ]


@pytest.mark.parametrize(("name", "cell"), cells_that(explore=False))
def test_it_is_not_accused(name: str, cell: Cell, cells: Cells, tmp_path: Path) -> None:
    verdict = cells.run(cell.scenario(name, seed=7), tmp_path)
    if verdict.status == "violated":
        raise Accused(told(verdict))
    assert verdict.status != "unknown", told(verdict)


@pytest.mark.parametrize(("name", "cell"), cells_that(explore=True))
def test_no_crash_state_accuses_it(name: str, cell: Cell, tmp_path: Path) -> None:
    file = tmp_path / "explored.json"
    words = ["explore", target(name), "--engine", cell.engine, "--policy", cell.policy, "--level", "1"]
    words += ["--budget", "20m", "--messages", "6", "--json", str(file), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(build(words), words)
    for found in json.loads(file.read_text())["explorations"]:
        if found["violated"]:
            raise Accused(f"{found['violated']} of {found['states']} states: {found['first_bad']}")
    assert done.exit_code == 0, done.output


def test_every_correct_store_has_cells() -> None:
    assert all(correct_stores().values())
