"""Every fault and every anomaly has a planted store, or a reason why there can be none."""

import importlib
import pkgutil

import pytest

import tests.planted
from recollect.verify.judging.checkers import ANOMALIES
from recollect.verify.running.faults import FAULTS, fault_named
from tests.planted.planted import WITHOUT_A_STORE, by_anomaly, by_fault, catalogue


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_is_caught_through_every_fault(fault: str) -> None:
    assert by_fault().get(fault) or fault in WITHOUT_A_STORE, f"plant a store that {fault} catches"


@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_a_store_is_caught_under_every_name(anomaly: str) -> None:
    """Under that name alone: a store that may be caught under one of several names proves none of them."""
    assert by_anomaly().get(anomaly) or anomaly in WITHOUT_A_STORE, (
        f"plant a store that is caught as {anomaly}"
    )


def test_no_reason_has_outlived_itself() -> None:
    planted = by_fault().keys() | by_anomaly().keys()
    assert not planted & WITHOUT_A_STORE.keys()
    assert WITHOUT_A_STORE.keys() <= {*FAULTS, *ANOMALIES}


def test_what_stores_declare_exists() -> None:
    for name, planted in catalogue().items():
        assert fault_named(planted.fault).name == planted.fault, name
        assert set(planted.anomalies) <= set(ANOMALIES), name


def test_every_module_with_a_store_declares_it_and_its_twin() -> None:
    """A forgotten declaration would leave the store out of every run."""
    stores = {
        module.name
        for module in pkgutil.iter_modules(tests.planted.__path__)
        if hasattr(importlib.import_module(f"tests.planted.{module.name}"), "factory")
    }
    assert stores == catalogue().keys()
    for name in stores:
        assert callable(importlib.import_module(f"tests.planted.{name}").twin)
