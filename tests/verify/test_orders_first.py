"""A default run of `recollect verify` tries orders of events before everything else."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from recollect.cli import build
from recollect.verify.explore import orders_first
from recollect.verify.explore.interleavings.interleave import Interleaved
from recollect.verify.explore.interleavings.results import (
    FailedSchedule,
    InterleavingsAsked,
    InterleavingsFound,
    ProgramExplored,
)
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.verdict import Anomaly, Verdict, WitnessEvents
from recollect.verify.matrix.matrix import Matrix
from recollect.verify.matrix.results import Result, Results, exit_code
from recollect.verify.matrix.selection import BadRequest, Cell, VerifyRequest, select
from recollect.verify.running.scenario import Scenario
from tests.report.test_findings import printed_of

STORES = "tests.interleavings.planted.whole_messages"
NONE = Scenario(target="app:make", engine="redis", policy="rdb", fault="none", workload="turns")


def verify(target: str, out: Path, *more: str, expect: tuple[int, ...]) -> dict[str, Any]:
    file = out.with_suffix(".json")
    words = [
        *("verify", target, "--engine", "redis", "--policy", "aof-everysec", "--fault", "none"),
        *("--out", str(out), "--json", str(file), *more),
    ]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code in expect, done.output
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_a_lock_that_all_tasks_of_a_process_share_is_one_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders_first, "SECONDS_MAX", 120.0)  # it ends when it is found
    monkeypatch.setattr(orders_first, "SHARE", 2.0)
    monkeypatch.setattr(orders_first, "GRACE_S", 120.0)
    monkeypatch.setattr(orders_first, "GRACE_SHARE", 2.0)
    found = verify(f"{STORES}:LockOfTheProcess", tmp_path / "out", expect=(1,))
    (finding,) = found["findings"]
    assert finding["name"] in ("lost-update", "dropped")
    assert (finding["number"], finding["confirmed"]) == (1, "3 of 3")
    assert finding["sentence"].endswith("is gone.")
    assert {step["process"] for step in finding["smallest"]["steps"]} == {0, 1}
    assert (finding["smallest"]["how"], finding["smallest"]["program"]) == ("tasks", "a | a")
    words = [*shlex.split(finding["replay"])[1:], "--times", "1"]
    again = CliRunner().invoke(build(words), words)
    assert again.exit_code == 1, again.output
    assert f"{finding['name']}: seen in 1 of 1 runs" in again.output


def test_the_same_store_with_a_lock_for_each_call_holds(tmp_path: Path) -> None:
    # 3: a machine too busy for a cell.
    found = verify(f"{STORES}:LockOfTheCall", tmp_path / "out", "--writers", "2", expect=(0, 3))
    (cell,) = (cell for cell in found["cells"] if cell["workload"] == INTERLEAVINGS)
    assert found["findings"] == []
    assert cell["replay"] is None
    slow = cell["status"] == "skipped" and "orders of events" in cell["reason"]
    assert slow or cell["status"] == "held", cell


def laid_out(**asked: Any) -> list[tuple[str, str]]:
    request = VerifyRequest(**{"targets": ("app:make",), "engine": "redis", **asked})
    cells = select(request, {target: frozenset({"batches"}) for target in request.targets})
    return [(cell.scenario.target, cell.scenario.policy) for cell in orders_first.cells_for(request, cells)]


def test_who_gets_them() -> None:
    assert laid_out() == [("app:make", "aof-everysec")]
    assert laid_out(faults=("none",), policies=("rdb",)) == [("app:make", "rdb")]
    assert laid_out(faults=("kill-engine", "none"), targets=("app:make", "redis")) == [
        ("app:make", "aof-everysec")
    ]


@pytest.mark.parametrize(
    "asked",
    [
        {"targets": ("redis",)},
        {"faults": ("kill-engine",)},
        {"faults": ("none@one-writer",)},
        {"workloads": ("turns",)},
        {"writers": 1},
        {"provider": "docker"},
        {"shard": (2, 3)},
        {"engine": "chroma"},
    ],
    ids=str,
)
def test_who_does_not(asked: dict[str, Any]) -> None:
    assert laid_out(**asked) == []


def test_they_take_a_part_of_the_budget() -> None:
    assert orders_first.seconds_each(1, None) == orders_first.SECONDS_MAX
    assert orders_first.seconds_each(1, 60.0) == orders_first.SECONDS_MAX
    assert orders_first.seconds_each(2, 60.0) == 3.0
    assert orders_first.seconds_each(1, 10.0) == 0.0


def test_with_starting_and_making_smaller_they_keep_to_their_share_on_a_slow_machine(tmp_path: Path) -> None:
    """A store that takes five seconds to open stands for a machine that does."""
    slow = msgspec.structs.replace(NONE, target="tests.verify.slow_to_open:factory", policy="none")
    result = orders_first.exploring(1.0, grace_s=1.5)(slow, tmp_path)
    assert result.elapsed_s < 4.0, result
    assert result.verdict.status == "skipped"
    assert orders_first.grace_each(1, None) == orders_first.GRACE_S
    assert orders_first.grace_each(2, 20.0) == 2.0


def explored(verdict: Verdict, found: InterleavingsFound, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(orders_first, "interleave", lambda *_, **__: Interleaved(verdict, found))
    return orders_first.exploring(1.0)(NONE, Path("000-orders"))


def test_what_is_out_of_sight_is_a_line_and_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = InterleavingsAsked(target="app:make", engine="redis", how="auto")
    verdict = Verdict(status="unknown", reason="a thread in C")
    orders = explored(verdict, InterleavingsFound(asked=asked), monkeypatch)
    scenario = orders_first._without_size(NONE)
    results = Results(
        results=(
            Result(scenario=scenario, verdict=orders.verdict),
            Result(scenario=NONE, verdict=Verdict(status="held", acked=3)),
        )
    )
    assert exit_code(results) == 0
    assert any("could not be tried: a thread in C" in line for line in printed_of(results, width=200))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("a:make", "--engine", "redis", "--program", "a | q"), "--program 'a | q': 'q' is not an operation"),
        (("a:make", "--engine", "redis", "--program", "a || a"), "client B has no operation"),
        (
            ("a:make", "--engine", "redis", "--program", "a|a", "--fault", "cut"),
            "no orders of events are tried",
        ),
        (("redis", "--program", "a | a"), "no orders of events are tried"),
    ],
    ids=str,
)
def test_a_program_that_cannot_be_run_is_named(words: tuple[str, ...], told: str) -> None:
    done = CliRunner().invoke(build(["verify", *words]), ["verify", *words])
    assert done.exit_code == 2, done.output
    assert told in done.output


def test_a_program_that_the_target_cannot_do_is_named() -> None:
    request = VerifyRequest(targets=("app:make",), engine="redis", programs=("a | f",))
    orders_first.check_programs(request, {"app:make": {"forget"}})
    with pytest.raises(BadRequest, match=r"app:make: `f` \(forget\) needs a target with 'forget'"):
        orders_first.check_programs(request, {"app:make": set()})


@pytest.mark.parametrize(("program", "status"), [("a", "skipped"), ("a | a", "violated")])
def test_a_store_that_is_for_one_thread_is_not_accused_of_an_order(
    program: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = "append raised although nothing was broken: ProgrammingError: created in another thread"
    failure = FailedSchedule(
        program=program,
        schedule="-",
        anomalies=(Anomaly("raised", 1, False, WitnessEvents(), refused),),
        steps=(),
        preemptions=0,
        found_at=1,
        confirmed=3,
    )
    asked = InterleavingsAsked(target="app:make", engine="sqlite", how="auto")
    explored_program = ProgramExplored(program=program, schedules=1, judged=1, failure=failure)
    found = InterleavingsFound(asked=asked, how="threads", programs=[explored_program])
    verdict = Verdict(status="violated", anomalies=failure.anomalies)
    monkeypatch.setattr(orders_first, "interleave", lambda *_, **__: Interleaved(verdict, found))
    result = orders_first.exploring(1.0)(NONE, tmp_path)
    assert result.verdict.status == status
    told = "only the thread that opened the store may use it; `recollect explore app:make --engine redis"
    assert status == "violated" or told in (result.verdict.reason or "")


def test_what_no_replay_showed_again_is_not_said_of_one_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = FailedSchedule(
        program="a | a",
        schedule="AB",
        anomalies=(Anomaly("lost-update", 1, True, WitnessEvents(), "There was no fault in between, but …"),),
        steps=(),
        preemptions=0,
        found_at=1,
    )
    asked = InterleavingsAsked(target="app:make", engine="redis", how="auto")
    program = ProgramExplored(program="a | a", schedules=1, judged=1, failure=failure)
    found = InterleavingsFound(asked=asked, how="threads", programs=[program])
    orders = explored(Verdict(status=found.status, reason=found.reason), found, monkeypatch)
    assert orders.verdict.status == "skipped"
    assert (orders.verdict.reason or "").startswith(
        "in one order of events, lost-update was seen once, and in none of 3 replays; `recollect explore app:make"
    )


@pytest.mark.parametrize(("bound", "status"), [(-1, "skipped"), (1, "held")])
def test_a_part_of_the_orders_is_no_reason_to_say_held(
    bound: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = ProgramExplored(program="a | a", schedules=9, judged=9, bound=1)
    last = ProgramExplored(program="a | a | a", schedules=2, judged=2, bound=bound)
    asked = InterleavingsAsked(target="app:make", engine="redis", how="auto")
    found = InterleavingsFound(asked=asked, how="tasks", programs=[finished, last])
    orders = explored(Verdict(status=found.status, reason=found.reason), found, monkeypatch)
    assert orders.verdict.status == status
    if status == "skipped":
        assert orders.verdict.reason == (
            "11 orders of events showed nothing, and time was up; "
            "`recollect explore app:make --engine redis --interleavings` tries more"
        )


def test_they_come_first_and_an_interruption_among_them_ends_the_run(tmp_path: Path) -> None:
    def interrupted(scenario: Scenario, folder: Path) -> Result:
        assert scenario.workload == INTERLEAVINGS
        raise KeyboardInterrupt

    cells = [Cell(NONE), Cell(orders_first._without_size(NONE))]
    results = Matrix(cells, tmp_path, explore_orders=interrupted).run()
    assert [result.verdict.reason for result in results.results] == ["interrupted"] * 2
    assert exit_code(results) == 3
