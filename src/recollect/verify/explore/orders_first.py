"""The first seconds of `recollect verify`: orders of events, before anything happens to a store.

They are the cheapest way to the smallest example, so each of the user's own targets gets a cell of them ahead of all
others. What they find counts like any other finding. What they cannot see does not fail a run whose other cells
conclude: the cell is skipped, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from recollect.printable import counted
from recollect.verify.explore.interleavings import telling
from recollect.verify.explore.interleavings.interleave import Interleaved, interleave
from recollect.verify.explore.interleavings.program import BadProgram, ClientsProgram
from recollect.verify.explore.interleavings.results import FailedSchedule
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.matrix import ExploreOrders
from recollect.verify.matrix.results import Result, SmallestRun
from recollect.verify.matrix.selection import (
    BadRequest,
    Cell,
    FaultCase,
    VerifyRequest,
    engine_of,
    fault_cases,
)
from recollect.verify.running import scenario as scenarios
from recollect.verify.running import seal
from recollect.verify.running.faults.process import ONE_WRITER
from recollect.verify.running.scenario import KINDS, Scenario

SECONDS_MAX = 5.0
SECONDS_LEAST = 1.5
"""With less time, the engine has hardly started."""
SHARE = 0.1
"""At most this share of the budget, for all targets together."""
GRACE_S = 30.0
"""Extra time for starting, and for making what was found smaller; a store that takes longer hangs."""
GRACE_SHARE = 0.2
"""At most this share of the budget for it, so that on a busy machine the others have their turn."""
ENGINES = ("redis", "postgres", "sqlite")
WRITES = frozenset("aticspf")


def cells_for(request: VerifyRequest, cells: list[Cell]) -> list[Cell]:
    """One for each of the user's own targets that is also run without a fault and with several writers.

    Not on an engine that the user prepared, nor for a workload that was asked for by name."""
    if _is_something_else(request) or request.shard[0] != 1:
        return []
    found: dict[str, Scenario] = {}
    for cell in cells:
        one = cell.scenario
        bare = cell.skipped is None and one.fault == "none" and one.variant != ONE_WRITER
        if bare and ":" in one.target and one.engine_kind in ENGINES:
            found.setdefault(one.target, one)
    return [Cell(_without_size(one)) for one in found.values()]


def check_programs(request: VerifyRequest, abilities: Mapping[str, Collection[str]]) -> None:
    """Refuses what cannot be read, what a target cannot do, and what would not be run."""
    for text in request.programs:
        try:
            program = ClientsProgram.parse(text)
        except BadProgram as bad:
            raise BadRequest(f"--{bad}") from None
        for target, able in abilities.items():
            if (lack := program.lacks(able)) is not None:
                raise BadRequest(f"--program {text!r}, {target}: {lack}")
    if request.programs and not any(case_for(request, target) for target in request.targets):
        raise BadRequest(
            "--program: no orders of events are tried here; they need a target of your own, the fault none, several"
            " writers, and an engine that the run starts"
        )


def case_for(request: VerifyRequest, target: str) -> FaultCase | None:
    """The same as a case of a pytest suite, known before the target is opened."""
    engine = engine_of(request, target).partition("@")[0]
    if _is_something_else(request) or ":" not in target or KINDS.get(engine, engine) not in ENGINES:
        return None
    for case in fault_cases(request, target):
        if case.fault == "none" and case.variant != ONE_WRITER:
            return case._replace(variant=INTERLEAVINGS)
    return None


def scenario_of(request: VerifyRequest, target: str, policy: str) -> Scenario:
    """The cell of such a case."""
    return Scenario(
        target=target,
        engine=engine_of(request, target),
        policy=policy,
        fault="none",
        workload=INTERLEAVINGS,
        path=request.path,
        seed=request.seed,
    )


def _is_something_else(request: VerifyRequest) -> bool:
    prepared = request.provider or request.url or request.engine_config
    return bool(request.workloads or prepared) or request.writers == 1


def _without_size(like: Scenario) -> Scenario:
    return Scenario(
        target=like.target,
        engine=like.engine,
        policy=like.policy,
        fault="none",
        workload=INTERLEAVINGS,
        path=like.path,
        seed=like.seed,
    )


def seconds_each(cells: int, budget_s: float | None) -> float:
    """What each may take; 0 where the budget has no room for them."""
    if budget_s is None:
        return SECONDS_MAX
    share_s = SHARE * budget_s / max(1, cells)
    return min(SECONDS_MAX, share_s) if share_s >= SECONDS_LEAST else 0.0


def grace_each(cells: int, budget_s: float | None) -> float:
    return GRACE_S if budget_s is None else min(GRACE_S, GRACE_SHARE * budget_s / max(1, cells))


def exploring(seconds: float, programs: tuple[str, ...] = (), grace_s: float | None = None) -> ExploreOrders:
    """What the matrix calls for such a cell."""

    def explore(scenario: Scenario, folder: Path) -> Result:
        began = time.monotonic()
        done = interleave(
            scenario.target,
            scenario.engine,
            seconds,
            folder,
            policy=scenario.policy,
            programs=programs,
            path=scenario.path,
            grace_s=GRACE_S if grace_s is None else grace_s,
        )
        result = _result(scenario, done, folder)
        return msgspec.structs.replace(
            result, elapsed_s=time.monotonic() - began, engine_version=done.found.engine_version
        )

    return explore


def _result(scenario: Scenario, done: Interleaved, folder: Path) -> Result:
    verdict, failure = done.verdict, done.found.failure
    if verdict.status == "held":
        return Result(scenario=scenario, verdict=verdict, notes=(f"orders of events: {done.found.coverage}",))
    if verdict.status == "violated" and failure is not None and not _raises_without_any_order(failure):
        return _violated(scenario, done, failure, folder)
    return Result(scenario=scenario, verdict=Verdict(status="skipped", reason=_why_skipped(scenario, done)))


def _why_skipped(scenario: Scenario, done: Interleaved) -> str:
    """With the command that goes on, where there is one."""
    goes_on = f"`recollect explore {scenario.target} --engine {scenario.engine} --interleavings`"
    failure = done.found.failure
    if done.found.is_of_one_thread:
        return (
            "orders of events could not be tried inside one process: only the thread that opened the store may use "
            f"it; {goes_on} tries several processes"
        )
    if failure is not None and failure.confirmed:
        alone = failure.anomalies[0].sentence.rstrip(".")
        return f"orders of events could not be tried: with one caller alone, {alone}"
    if failure is not None and done.found.trouble is None:
        return f"in one order of events, {done.verdict.reason}; {goes_on} tries more"
    if done.found.is_cut_short and any(one.judged for one in done.found.programs):
        judged = sum(one.judged for one in done.found.programs)
        return f"{counted(judged, 'order')} of events showed nothing, and time was up; {goes_on} tries more"
    return f"orders of events could not be tried: {done.verdict.reason}"


def _raises_without_any_order(failure: FailedSchedule) -> bool:
    """A store that may only be used by the thread that opened it raises even for a single caller: it is not made for
    threads, and no order is to blame. A store that always raises is caught by the cells with one writer."""
    alone = len(ClientsProgram.parse(failure.program).clients) == 1 and not failure.past
    return alone and failure.names[0] == "raised"


def _violated(scenario: Scenario, done: Interleaved, failure: FailedSchedule, folder: Path) -> Result:
    clients = ClientsProgram.parse(failure.program).clients
    writing = sum(any(op.letter in WRITES for op in operations) for operations in clients)
    shown = msgspec.structs.replace(
        scenario,
        how=done.found.how,
        program=failure.programs,
        schedule=failure.schedules,
        writers=max(1, writing),
        readers=len(clients) - writing,
        sessions=len(ClientsProgram.parse(failure.program).sessions),
        ops_max=max(map(len, clients)),
    )
    scenarios.save(shown, folder)
    seal.write(folder)
    first = msgspec.structs.replace(failure.anomalies[0], sentence=telling.sentence(failure))
    return Result(
        scenario=shown,
        verdict=msgspec.structs.replace(done.verdict, anomalies=(first, *failure.anomalies[1:])),
        folder=folder.name,
        reproduced=(failure.confirmed, done.found.asked.confirmations),
        smallest=shown,
        smallest_run=SmallestRun(
            scenario=shown, anomaly=first, steps=telling.steps_taken(failure), folder=folder.name
        ),
        shrunk=f"found at schedule {failure.found_at}",
    )
