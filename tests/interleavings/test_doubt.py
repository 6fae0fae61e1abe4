"""What was out of sight, does not end, or brings the process down is `unknown`, and never `held`."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.verify.explore.interleavings.results import (
    InterleavingsAsked,
    InterleavingsFound,
    ProgramExplored,
)
from recollect.verify.explore.interleavings.words import explore_interleavings
from tests.interleavings.cells import HERE, Cell

STORES = "tests.interleavings.planted.redis_tasks"


def explored(store: str, folder: Path, program: str = "a | a", engine: str = "redis") -> InterleavingsFound:
    asked = InterleavingsAsked(
        target=store,
        engine=engine,
        how="tasks",
        programs=(program,),
        seconds=10.0,
        folder=str(folder),
        path=(str(HERE),),
    )
    return explore_interleavings(asked).found


def test_a_driver_with_connections_of_its_own_is_noticed(tmp_path: Path) -> None:
    found = explored(f"{STORES}:OutOfSight", tmp_path)
    assert found.status == "unknown"
    assert "a driver has connections of its own" in (found.reason or "")


def test_a_process_that_does_not_come_to_the_gate_is_noticed(tmp_path: Path) -> None:
    cell = Cell("sqlite_tasks:AnotherWay", "sqlite", "processes")
    found = cell.explore(tmp_path, 10.0, programs=("a | a",)).found
    assert (found.status, found.failure) == ("unknown", None)
    assert "a way that has no gate" in (found.reason or "")


def test_a_client_that_asks_again_and_again_is_no_hang(tmp_path: Path) -> None:
    found = explored(f"{STORES}:PollsForEver", tmp_path)
    assert (found.status, found.failure) == ("unknown", None)
    assert "not end" in (found.reason or "")


def test_a_store_that_ends_its_process_is_told(tmp_path: Path) -> None:
    found = explored(f"{STORES}:EndsTheProcess", tmp_path)
    assert found.status == "unknown"
    assert "its process ended (7)" in (found.reason or "")


def test_threads_that_a_store_leaves_behind_keep_nobody_waiting(tmp_path: Path) -> None:
    found = explored("tests.interleavings.planted.sqlite_tasks:ThreadsLeftBehind", tmp_path, "a", "sqlite")
    assert (found.status, found.reason) == ("held", None)


def test_threads_are_for_synchronous_stores(tmp_path: Path) -> None:
    asked = InterleavingsAsked(
        target=f"{STORES}:OneCommand", engine="redis", how="threads", folder=str(tmp_path), path=(str(HERE),)
    )
    found = explore_interleavings(asked).found
    assert found.status == "unknown"
    assert "explore its tasks" in (found.reason or "")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"judged": 3, "bound": 1}, None),
        ({"judged": 3, "bound": 0}, None),
        ({"judged": 3, "exhausted": True}, None),
        ({"judged": 3}, "the time ended before every order with one preemption"),
        ({"judged": 3, "diverged": 1}, "went differently"),
        ({"judged": 3, "unfinished": 2}, "do not end"),
        ({"judged": 3, "doubt": "the checker hole crashed"}, "hole crashed"),
        ({}, "before one schedule was judged"),
    ],
)
def test_every_gap_is_a_doubt(more: dict[str, object], reason: str | None) -> None:
    one = ProgramExplored(program="a | a", schedules=3, **more)  # type: ignore[arg-type]
    found = InterleavingsFound(asked=InterleavingsAsked("t", "redis", "tasks"), programs=[one])
    assert found.status == ("held" if reason is None else "unknown")
    assert reason is None or reason in (found.reason or "")


def test_time_that_passed_in_one_schedule_is_no_part_of_the_next(tmp_path: Path) -> None:
    found = explored(f"{STORES}:GivesUpWhenSlow", tmp_path)
    assert found.programs[0].judged > 5
    assert found.programs[0].diverged == 0
    assert found.failure is None, "a caller that gives up because we hold it up is excused"
