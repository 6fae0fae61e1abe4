"""Cells of a run that never was: what they showed is written down."""

from typing import Any

from recollect.verify.judging.steps import StepTaken
from recollect.verify.judging.verdict import Anomaly, Verdict, WitnessEvents
from recollect.verify.matrix.results import Result, SmallestRun
from recollect.verify.running.scenario import Scenario


def anomaly(name: str, *, covered: bool = False) -> Anomaly:
    return Anomaly(name, 3, True, WitnessEvents(session="s"), f"{name} happened", covered)


def cell(fault: str, *names: str, status: str = "violated", **more: Any) -> Result:
    scenario = Scenario(target="app:make", engine="redis", policy="rdb", fault=fault, **more)
    verdict = Verdict(status=status, acked=9, anomalies=tuple(map(anomaly, names)))  # type: ignore[arg-type]
    return Result(scenario=scenario, verdict=verdict, folder=f"{fault}-{more.get('workload', '')}")


def shrunk() -> Result:
    steps = (
        StepTaken(0, "reads: nothing"),
        StepTaken(1, "reads: nothing"),
        StepTaken(0, "saves m0", told=True),
        StepTaken(1, "saves m1"),
        StepTaken(2, "reads: m1", told=True),
    )
    first = cell("none", "lost-update", workload="rewrite")
    small = Scenario(
        target="app:make",
        engine="redis",
        policy="rdb",
        fault="none",
        workload="rewrite",
        writers=2,
        sessions=1,
        ops_max=2,
    )
    told = Anomaly("lost-update", 1, True, WitnessEvents(session="s"), "m1 went over m0")
    return Result(
        scenario=first.scenario,
        verdict=first.verdict,
        folder=first.folder,
        reproduced=(3, 3),
        smallest_run=SmallestRun(scenario=small, anomaly=told, steps=steps, folder="small"),
        shrunk="nothing smaller shows it",
    )
