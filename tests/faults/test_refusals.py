"""The engine is up and says no: the refusals are real, and a store survives them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from recollect.verify.judging.history import History
from recollect.verify.judging.op import FaultDetail
from recollect.verify.running.faults import FAULTS
from recollect.verify.running.faults.refusals import REFUSALS
from recollect.verify.running.run import Run
from recollect.verify.running.scenario import Scenario
from tests.faults.cells import our_cell


def said(folder: Path) -> dict[str, set[str]]:
    """What operations that did not succeed were told, by the refusal that was provoked meanwhile."""
    found: dict[str, set[str]] = defaultdict(set)
    now = ""
    for event in History(folder / "history.jsonl"):
        if event.kind == "fault-injected" and isinstance(event.value, FaultDetail):
            now = event.value.detail
        elif event.kind == "fault-healed":
            now = ""
        elif now and event.kind in ("fail", "unknown"):
            found[now].add(event.error or "")
    return found


def shown(found: dict[str, set[str]], words: dict[str, str]) -> set[str]:
    return {name for name, word in words.items() if any(word in error for error in found[name])}


def held(target: str, engine: str, policy: str, folder: Path) -> None:
    """A plain store of somebody else, which hides nothing."""
    scenario = Scenario(
        target=target,
        engine=engine,
        policy=policy,
        fault="refused",
        workload="turns",
        seed=3,
        path=(str(Path(__file__).parent.parent.parent),),
    )
    verdict = Run(scenario, folder).execute()
    assert verdict.status == "held", verdict.reason


def test_redis_says_no_and_a_plain_store_passes_it_on(tmp_path: Path) -> None:
    held("tests.planted.redis_list:RedisList", "redis", "aof-always", tmp_path)
    words = {
        "oom": "maxmemory",
        "readonly": "read only replica",
        "busy": "BUSY",
        "loading": "loading the dataset",
    }
    assert shown(said(tmp_path), words) >= {"oom", "readonly", "loading"}


def test_postgres_says_no_and_our_store_loses_nothing(tmp_path: Path) -> None:
    verdict = Run(our_cell("postgres", "refused"), tmp_path).execute()
    assert verdict.status == "held", verdict.reason
    words = {
        "deadlock": "deadlock detected",
        "serialization": "could not serialize",
        "terminated": "terminati",
        "statement-timeout": "statement timeout",
        "idle-timeout": "",
        "read-only": "read-only transaction",
    }
    # How long one lasts is a matter of milliseconds: on a busy machine not every one meets an operation.
    assert len(shown(said(tmp_path), words)) >= 3


def test_sqlite_says_no_and_a_plain_store_passes_it_on(tmp_path: Path) -> None:
    """LOCKED is told to connections that share a cache with the neighbour; CORRUPT to everybody."""
    held("tests.planted.table_lock_swallowed:SharedCache", "sqlite", "wal-full", tmp_path)
    words = {"table-locked": "table is locked", "corrupt": "disk image is malformed"}
    assert shown(said(tmp_path), words) == {"table-locked", "corrupt"}


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_our_other_stores_lose_nothing(store: str, tmp_path: Path) -> None:
    verdict = Run(our_cell(store, "refused"), tmp_path).execute()
    assert verdict.status == "held", verdict.reason


@pytest.mark.parametrize(
    ("engine", "policy", "variant", "says"),
    [
        ("redis", "rdb", "deadlock", "deadlock is what postgres says, not redis"),
        ("chroma", "embedded", "", "how chroma refuses is not known here"),
    ],
)
def test_what_an_engine_never_says(engine: str, policy: str, variant: str, says: str) -> None:
    scenario = Scenario(target="t", engine=engine, policy=policy, fault="refused", variant=variant)
    assert FAULTS["refused"].obstacle(scenario) == says


def test_every_refusal_is_a_variant() -> None:
    assert set(FAULTS["refused"].variants) == {"", *REFUSALS}
