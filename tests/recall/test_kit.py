"""What `recollect verify` says of a plain Chroma collection and of ours, under the same faults.

The plain one has no rows behind it, and must be caught, by name; ours must hold. Each fault is one cell.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.verify.judging.history import History
from recollect.verify.judging.op import FaultDetail
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.cell_process import Order
from recollect.verify.matrix.pool import CellPool
from recollect.verify.running.faults import FAULTS
from recollect.verify.running.scenario import Scenario

pytestmark = pytest.mark.xdist_group("recall-faults")

PLAIN = "recollect.recall.targets:plain_chroma"
TORN = {"unreadable", "index-divergence"}
GONE = {"silent-reset", "lost-tail", "lost-update", "dropped", "unreadable"}
CAUGHT = {
    "kill-engine@flush": TORN,
    "concurrent-writers": TORN,
    "concurrent-writers@one-writer": TORN,
    "wipe-volume@index": GONE,
    "disk-full@flush": TORN,
}
"""SIGKILL inside the add that crosses the threshold, four writers, a second reader that stays, the folder deleted under
a running process, a disk that is full during a flush."""
IN_INCIDENTS = ("kill-engine@flush", "concurrent-writers@one-writer")
"""docs/incidents.md has these two for the plain one, and its test runs them."""
SEEDS = 3
"""Where a torn file happens to be readable, another moment is tried."""


@pytest.fixture(scope="module")
def pool() -> Iterator[CellPool]:
    """One process for all cells: it imports Chroma once."""
    pool = CellPool(1)
    yield pool
    pool.close()


def verdict_of(pool: CellPool, target: str, policy: str, fault: str, folder: Path, seed: int = 1) -> Verdict:
    name, _, variant = fault.partition("@")
    scenario = Scenario(
        target=target,
        engine="chroma",
        policy=policy,
        fault=name,
        variant=variant,
        workload="search",
        writers=4 if name == "concurrent-writers" else 2,
        sessions=2,
        seed=seed,
    )
    assert FAULTS[name].obstacle(scenario) is None
    return pool.run(Order(scenario, str(folder), (PLAIN.partition(":")[0], "chromadb"))).verdict


CALLED = {"wipe-volume@index": "exposed"}
"""A collection has no identity that could tell."""


@pytest.mark.parametrize("fault", [fault for fault in CAUGHT if fault not in IN_INCIDENTS])
def test_a_plain_collection_is_caught_by_name(pool: CellPool, fault: str, tmp_path: Path) -> None:
    verdicts = []
    for seed in range(1, SEEDS + 1):
        verdicts.append(verdict_of(pool, PLAIN, "embedded", fault, tmp_path / str(seed), seed))
        if verdicts[-1].status == CALLED.get(fault, "violated"):
            break
    assert verdicts[-1].status == CALLED.get(fault, "violated"), verdicts
    assert CAUGHT[fault] & {anomaly.name for anomaly in verdicts[-1].anomalies}, verdicts


@pytest.mark.parametrize("fault", CAUGHT)
def test_ours_holds(pool: CellPool, fault: str, tmp_path: Path) -> None:
    verdict = verdict_of(pool, "chroma", "embedded", fault, tmp_path)
    assert verdict.status == "held", verdict
    if fault.endswith("@flush"):
        (detail,) = details(tmp_path)
        assert detail.startswith("flush: after "), "it was killed or full in the middle of a vector file"


@pytest.mark.parametrize("fault", ["power-loss", "kill-engine@flush"])
def test_ours_holds_on_a_server(pool: CellPool, fault: str, tmp_path: Path) -> None:
    """The rows beside the server's files are recorded as well: a blind recorder would be `unknown`."""
    verdict = verdict_of(pool, "chroma", "server", fault, tmp_path)
    assert verdict.status == "held", verdict


def test_a_wiped_volume_is_said_loudly(pool: CellPool, tmp_path: Path) -> None:
    verdict = verdict_of(pool, "chroma", "server", "wipe-volume", tmp_path)
    assert verdict.status == "documented-loss", verdict
    assert {(anomaly.name, anomaly.silent) for anomaly in verdict.anomalies} == {("unreadable", False)}


def details(folder: Path) -> list[str]:
    return [
        event.value.detail
        for event in History(folder / "history.jsonl")
        if event.kind == "fault-injected" and isinstance(event.value, FaultDetail)
    ]
