"""Network faults on our stores: nothing is lost or doubled, and what is said about each write is true."""

import os
from pathlib import Path

import pytest

from recollect.verify.running.faults import FAULTS, network
from tests.faults.cells import acknowledged_after, errors, our_cell, run_cell

SERVERS = ("redis", "postgres")


@pytest.mark.parametrize("store", SERVERS)
def test_a_lost_acknowledgement_is_retried_and_stored_once(store: str, tmp_path: Path) -> None:
    verdict = run_cell(our_cell(store, "lost-ack", workload="turns"), tmp_path)
    assert verdict.status == "held", (verdict.reason, verdict.anomalies)
    assert any("OutcomeUnknown" in error for error in errors(tmp_path, "unknown", "lost-ack"))


@pytest.mark.parametrize("store", SERVERS)
def test_latency(store: str, tmp_path: Path) -> None:
    verdict = run_cell(our_cell(store, "latency"), tmp_path)
    assert verdict.status == "held", (verdict.reason, verdict.anomalies)


@pytest.mark.parametrize("store", SERVERS)
def test_a_cut_is_noticed_and_survived(store: str, tmp_path: Path) -> None:
    verdict = run_cell(our_cell(store, "cut"), tmp_path)
    assert verdict.status == "held", (verdict.reason, verdict.anomalies)
    assert any("NotWritten" in error for error in errors(tmp_path, "fail", "cut"))
    assert acknowledged_after(tmp_path, "cut")


@pytest.mark.parametrize("store", SERVERS)
def test_a_write_that_arrives_after_it_was_given_up(store: str, tmp_path: Path) -> None:
    verdict = run_cell(our_cell(store, "half-open"), tmp_path)
    assert verdict.status == "held", (verdict.reason, verdict.anomalies)
    assert any("OutcomeUnknown" in error for error in errors(tmp_path, "unknown", "half-open"))


def test_it_arrives_no_earlier_on_a_busy_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (8.0 * (os.cpu_count() or 1), 0.0, 0.0))
    monkeypatch.setattr(network, "PATIENCE_S", 1.6)
    verdict = run_cell(our_cell("redis", "half-open"), tmp_path)
    assert verdict.status == "held", (verdict.reason, verdict.anomalies)
    assert any("OutcomeUnknown" in error for error in errors(tmp_path, "unknown", "half-open"))


@pytest.mark.parametrize(
    ("store", "words"), [("redis", "max number of clients reached"), ("postgres", "too many clients already")]
)
def test_all_connections_are_taken(store: str, words: str, tmp_path: Path) -> None:
    verdict = run_cell(our_cell(store, "pool-exhausted"), tmp_path)
    assert verdict.status == "held", (verdict.reason, verdict.anomalies)
    refused = errors(tmp_path, "fail", "pool-exhausted")
    assert any(words in error for error in refused + errors(tmp_path, "unknown", "pool-exhausted"))
    assert all(error.startswith("NotWritten") for error in refused)
    assert acknowledged_after(tmp_path, "pool-exhausted")


@pytest.mark.parametrize("fault", ["lost-ack", "latency", "cut", "half-open", "pool-exhausted"])
def test_an_embedded_engine_has_no_network(fault: str) -> None:
    reason = FAULTS[fault].obstacle(our_cell("sqlite", fault))
    assert reason is not None
