"""Every planted store is caught, under a name that fits, by the cell it declares."""

from pathlib import Path

import pytest

from recollect.verify.running.run import Run
from tests.planted.planted import Planted, catalogue

CATALOGUE = catalogue()


@pytest.mark.parametrize("name", CATALOGUE)
def test_it_is_caught(name: str, tmp_path: Path) -> None:
    planted: Planted = CATALOGUE[name]
    verdict = Run(planted.scenario(f"tests.planted.{name}", seed=7), tmp_path).execute()
    found = {anomaly.name for anomaly in verdict.anomalies}
    assert found & set(planted.anomalies), (verdict.status, verdict.reason, found)
    assert verdict.status == planted.status, (verdict.status, verdict.reason)


def test_there_are_enough() -> None:
    assert len(CATALOGUE) >= 20
