"""Testing the tester: no false alarm on valid histories, and every planted anomaly by its right name."""

from __future__ import annotations

import pytest

from recollect.verify.analyze import analyze
from recollect.verify.checkers import ANOMALIES

from .plants import PLANTS
from .simulator import valid_history
from .truth import check_witness

CHUNKS = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_valid_histories_raise_no_alarm(chunk: int, is_full: bool) -> None:
    seeds = range(chunk, 10_000 if is_full else 1_000, CHUNKS)
    for seed in seeds:
        verdict = analyze(valid_history(seed))
        alarms = [anomaly.sentence for anomaly in verdict.anomalies]
        assert not alarms, f"seed {seed}: {alarms}"
        assert verdict.lost == 0, f"seed {seed}"
        accounted = verdict.kept + verdict.forgotten + verdict.unchecked
        assert accounted == verdict.acked, f"seed {seed}"
        assert min(verdict.kept, verdict.forgotten, verdict.unchecked) >= 0, f"seed {seed}"
        assert verdict.status in ("held", "unknown"), f"seed {seed}"


@pytest.mark.parametrize("name", PLANTS)
def test_planted_anomaly_is_caught_under_its_name_with_a_true_witness(name: str, is_full: bool) -> None:
    for seed in range(1_000 if is_full else 60):
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
