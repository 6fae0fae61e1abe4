"""The named moments of kill-engine, and dying at a line: each really happens, and the history says so."""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from recollect.verify.judging.history import History
from recollect.verify.judging.op import FaultDetail
from recollect.verify.running.clients import Client
from recollect.verify.running.faults.process import worth_killing
from recollect.verify.running.run import Run
from recollect.verify.running.scenario import Scenario
from recollect.verify.running.workloads import AppendTurn, Intent, Plan, ReadBack, ReplaceAll, TakeBack
from recollect.verify.target.workers import Worker
from tests.faults.cells import our_cell, run_cell

TWO_WRITES = "tests.planted.turn_in_two_writes:factory"


def details(folder: Path) -> list[str]:
    """What the faults of a run said of themselves, in their order."""
    return [
        event.value.detail
        for event in History(folder / "history.jsonl")
        if event.kind == "fault-injected" and isinstance(event.value, FaultDetail)
    ]


def on_redis(target: str, fault: str, variant: str = "", **more: Any) -> Scenario:
    more = {"policy": "aof-always", "workload": "turns", **more}
    return Scenario(target=target, engine="redis", fault=fault, variant=variant, seed=5, **more)


@pytest.mark.parametrize(
    ("moment", "policy", "began", "ended"),
    [
        ("bgsave", "rdb", "Background saving started", "Background saving terminated"),
        ("bgrewriteaof", "aof-always", "Background append only file rewriting started", "rewrite terminated"),
    ],
)
def test_the_engine_dies_while_its_child_is_at_work(
    moment: str, policy: str, began: str, ended: str, tmp_path: Path
) -> None:
    verdict = run_cell(on_redis("redis", "kill-engine", moment, policy=policy), tmp_path)
    assert verdict.status == ("documented-loss" if policy == "rdb" else "held"), verdict
    (detail,) = details(tmp_path)
    assert detail.startswith(f"{moment}: ")
    assert detail.endswith(" keys are saved")
    log = (tmp_path / "engine.log").read_text()
    assert began in log
    assert ended not in log, "the child was killed, it did not end"


def test_the_engine_dies_right_after_a_snapshot(tmp_path: Path) -> None:
    verdict = run_cell(on_redis("redis", "kill-engine", "after-snapshot", policy="rdb"), tmp_path)
    assert verdict.status == "documented-loss", verdict
    assert {anomaly.name for anomaly in verdict.anomalies} <= {"lost-tail", "non-monotonic-read"}
    assert verdict.kept > 0, "what the snapshot has"
    (detail,) = details(tmp_path)
    assert int(detail.split()[1]) > 0, "writes came after the snapshot"
    assert "DB saved on disk" in (tmp_path / "engine.log").read_text()


def test_the_engine_dies_between_the_two_writes_of_a_turn(tmp_path: Path) -> None:
    verdict = run_cell(on_redis(TWO_WRITES, "kill-engine", "between-writes"), tmp_path)
    assert verdict.status == "violated", verdict
    assert {anomaly.name for anomaly in verdict.anomalies} == {"torn-turn"}
    (detail,) = details(tmp_path)
    assert detail.startswith("between-writes: at turn_in_two_writes.py:")


def test_a_transaction_has_a_moment_between_its_writes_and_survives_it(tmp_path: Path) -> None:
    scenario = msgspec.structs.replace(
        our_cell("postgres", "kill-engine", variant="between-writes"), target="tests.faults.two_rows:factory"
    )
    verdict = run_cell(scenario, tmp_path)
    assert verdict.status == "held", verdict
    (detail,) = details(tmp_path)
    assert detail.startswith("between-writes: at two_rows.py:")


def test_a_turn_that_is_one_write_has_no_moment_between_two(tmp_path: Path) -> None:
    verdict = run_cell(on_redis("redis", "kill-engine", "between-writes"), tmp_path)
    assert verdict.status == "skipped"
    assert "one write" in (verdict.reason or "")


@pytest.mark.parametrize("fault", ["kill-app-at-line", "kill-engine-at-line"])
def test_a_sweep_over_every_line_dies_on_each_and_finds_the_one_between_two_writes(
    fault: str, tmp_path: Path
) -> None:
    run = Run(on_redis(TWO_WRITES, fault, "every-line"), tmp_path)
    verdict = run.execute()
    assert "torn-turn" in {anomaly.name for anomaly in verdict.anomalies}, verdict
    (remark,) = run.notes.remarks
    died, lines = (int(word) for word in remark.split() if word.isdigit())
    assert died == lines == len(set(details(tmp_path))), "one death on each line that an append executes"


def test_dying_in_the_middle_of_a_whole_list_is_not_the_kit_overwriting_it(tmp_path: Path) -> None:
    """One writer, so nothing may be lost: the guests that die load before they save, like everybody."""
    target = "tests.planted.whole_list_overwritten:factory"
    verdict = run_cell(on_redis(target, "kill-app-at-line", workload="compact", readers=0), tmp_path)
    assert (verdict.status, verdict.lost) == ("held", 0), verdict


@pytest.mark.parametrize(
    ("intents", "killed"),
    [
        ([ReadBack("s"), AppendTurn("s", ()), ReplaceAll("s", ()), TakeBack("s", (0.5,))], [2, 3]),
        ([None, AppendTurn("s", ()), ReadBack("s")], [1]),
        ([None, ReadBack("s")], [0, 1]),
    ],
)
def test_kill_app_takes_a_writer_in_the_middle_of_a_write(
    intents: list[Intent | None], killed: list[int]
) -> None:
    writers = [Client(cast(Worker, None), cast(Plan, None), writer=True, intent=intent) for intent in intents]
    chosen = [
        place for place, writer in enumerate(writers) if any(writer is one for one in worth_killing(writers))
    ]
    assert chosen == killed
