"""Testing the tester: no false alarm on valid histories, and every planted anomaly by its right name.

A sample by default; `RECOLLECT_FULL_CHECKERS=1` goes through 10,000 valid histories and 1,000 variants of
each planted anomaly.
"""

from __future__ import annotations

import os

import pytest

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.checkers import ANOMALIES

from .history_plants import PLANTS
from .history_simulator import valid_history
from .witness_truth import check_witness

CHUNKS = 10
IS_FULL = os.environ.get("RECOLLECT_FULL_CHECKERS") == "1"
VALID = 10_000 if IS_FULL else 1_000
VARIANTS = 1_000 if IS_FULL else 60


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_valid_histories_raise_no_alarm(chunk: int) -> None:
    for seed in range(chunk, VALID, CHUNKS):
        verdict = analyze(valid_history(seed))
        alarms = [anomaly.sentence for anomaly in verdict.anomalies]
        assert not alarms, f"seed {seed}: {alarms}"
        assert verdict.lost == 0, f"seed {seed}"
        accounted = verdict.kept + verdict.forgotten + verdict.unchecked
        assert accounted == verdict.acked, f"seed {seed}"
        assert min(verdict.kept, verdict.forgotten, verdict.unchecked) >= 0, f"seed {seed}"
        assert verdict.status in ("held", "unknown"), f"seed {seed}"


@pytest.mark.parametrize("name", PLANTS)
def test_planted_anomaly_is_caught_under_its_name_with_a_true_witness(name: str) -> None:
    for seed in range(VARIANTS):
        planted = PLANTS[name](seed)
        verdict = analyze(planted.history)
        names = [anomaly.name for anomaly in verdict.anomalies]
        assert names == [name], f"seed {seed}: {names}"
        assert verdict.status == "violated", f"seed {seed}"
        anomaly = verdict.anomalies[0]
        witness = anomaly.first.message
        assert not (planted.messages and witness) or int(witness[1:]) in planted.messages, f"seed {seed}"
        check_witness(planted.history, anomaly)


def test_every_anomaly_is_planted() -> None:
    assert tuple(PLANTS) == ANOMALIES
