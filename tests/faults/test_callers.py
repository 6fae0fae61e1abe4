"""Several callers of one store: tasks, threads, and callers that give up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recollect.verify.judging.history import History
from recollect.verify.running.run import Run
from recollect.verify.running.scenario import Scenario
from recollect.verify.target.patience import GaveUp, Patience
from tests.faults.cells import acknowledged_after, errors, our_cell, run_cell

STORES = "tests.faults.caller_stores"


def on_redis(store: str, fault: str, variant: str = "", **more: Any) -> Scenario:
    return Scenario(
        target=f"{STORES}:{store}",
        engine="redis",
        policy="none",
        fault=fault,
        variant=variant,
        workload="append",
        seed=3,
        **more,
    )


def who_called(folder: Path) -> set[tuple[str, ...]]:
    said = (folder / "target.log").read_text().splitlines()
    return {tuple(line.split()[-2:]) for line in said if line.startswith("called by")}


def test_threads_share_one_store_of_one_process(tmp_path: Path) -> None:
    verdict = run_cell(on_redis("SaysWho", "none", "several-callers", writers=3), tmp_path)
    assert verdict.status == "held", verdict
    called = who_called(tmp_path)
    assert (len({process for process, _ in called}), len(called)) == (1, 3)


def test_several_processes_have_several_callers_each(tmp_path: Path) -> None:
    verdict = run_cell(on_redis("SaysWho", "concurrent-writers", "several-callers"), tmp_path)
    assert verdict.status == "held", verdict
    called = who_called(tmp_path)
    assert (len({process for process, _ in called}), len(called)) == (2, 4)


def test_a_smaller_run_has_no_more_callers_than_it_says(tmp_path: Path) -> None:
    scenario = on_redis("SaysWho", "none", "several-callers", writers=2, readers=0, ops_max=3)
    assert run_cell(scenario, tmp_path).status == "held"
    writers = {event.process for event in History(tmp_path / "history.jsonl") if event.operation == "append"}
    assert len(writers) == len(who_called(tmp_path)) == 2


def test_callers_end_with_their_process_and_come_again(tmp_path: Path) -> None:
    run = Run(on_redis("DiesOnce", "none", "several-callers", writers=3), tmp_path)
    verdict = run.execute()
    assert verdict.status == "held", verdict
    assert len(run.notes.deaths) == 1, "one process died, and not each of its callers"
    began = {event.process for event in History(tmp_path / "history.jsonl") if event.operation == "append"}
    assert len(began) > 3


def test_a_store_that_belongs_to_its_thread_is_not_accused(tmp_path: Path) -> None:
    scenario = Scenario(
        target=f"{STORES}:OneThread",
        engine="sqlite",
        policy="wal-normal",
        fault="none",
        variant="several-callers",
        workload="turns",
    )
    verdict = run_cell(scenario, tmp_path)
    assert verdict.status == "skipped", verdict
    assert "belongs to the thread that opened it" in (verdict.reason or "")


def test_callers_give_up_and_others_go_on(tmp_path: Path) -> None:
    run = Run(our_cell("redis", "cancel", workload="turns"), tmp_path)
    verdict = run.execute()
    assert verdict.status == "held", verdict
    given_up = errors(tmp_path, "unknown", during="cancel").count("the caller gave up")
    assert given_up >= 10
    assert acknowledged_after(tmp_path, "cancel") > 0
    assert any(remark.startswith("callers gave up") for remark in run.notes.remarks)


def test_nobody_can_give_up_a_call_of_a_synchronous_store(tmp_path: Path) -> None:
    verdict = run_cell(on_redis("SaysWho", "cancel"), tmp_path)
    assert verdict.status == "skipped", verdict
    assert "synchronous" in (verdict.reason or "")


async def _never() -> None:
    await asyncio.Event().wait()


async def _stubborn() -> str:
    try:
        await _never()
    except asyncio.CancelledError:
        return "answered anyway"
    raise AssertionError


async def _breaks() -> None:
    raise ValueError("its own")


def test_patience() -> None:
    async def callers() -> None:
        patience = Patience()
        patience.give_up_after(1.0)
        with pytest.raises(GaveUp):
            await patience.wait_for("read", _never())
        patience.give_up_after(1.0)
        assert await patience.wait_for("read", _stubborn()) == "answered anyway"
        patience.give_up_after(1.0)
        with pytest.raises(ValueError, match="its own"):
            await patience.wait_for("read", _breaks())
        with pytest.raises(ValueError, match="its own"):
            await patience.wait_for("read", _breaks())

    asyncio.run(callers())
