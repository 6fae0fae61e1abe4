"""A replica that has stopped following takes over: what was acknowledged without it is gone, and only that."""

from pathlib import Path

import msgspec
import pytest

from recollect.verify.judging.history import History
from recollect.verify.judging.op import WriteAsked
from tests.faults.cells import our_cell, run_cell


def acknowledged_alone(folder: Path) -> int:
    """How many messages the primary acknowledged from the fault's injection to its own death."""
    count, behind = 0, False
    asked: dict[int | None, int] = {}
    for event in History(folder / "history.jsonl"):
        if event.kind == "engine-stopped":
            break
        behind = behind or event.kind == "fault-injected"
        if event.kind == "invoke" and isinstance(event.value, WriteAsked):
            asked[event.process] = len(event.value.checksums)
        elif behind and event.kind == "ok" and event.operation == "append":
            count += asked[event.process]
    return count


@pytest.mark.parametrize("store", ["redis", "postgres"])
def test_asynchronous_replication_loses_what_the_replica_did_not_have(store: str, tmp_path: Path) -> None:
    verdict = run_cell(our_cell(store, "failover"), tmp_path)
    assert verdict.status == "documented-loss", verdict
    assert {anomaly.name for anomaly in verdict.anomalies} <= {"lost-tail", "non-monotonic-read"}
    alone = acknowledged_alone(tmp_path)
    assert 0 < verdict.lost <= alone, "no more than what the primary acknowledged alone"
    assert verdict.kept > 0
    assert "asynchronous" in verdict.promise


@pytest.mark.parametrize("store", ["redis", "postgres"])
def test_what_the_replica_acknowledged_too_survives(store: str, tmp_path: Path) -> None:
    name = {"redis": "redis", "postgres": "Postgres.factory"}[store]
    scenario = msgspec.structs.replace(our_cell(store, "failover"), target=f"tests.faults.replicated:{name}")
    verdict = run_cell(scenario, tmp_path)
    assert (verdict.status, verdict.lost) == ("held", 0), verdict
    assert verdict.acked > 10
