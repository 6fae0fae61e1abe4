"""Processes that end or stand still: the engine, the application, or one exact line of the store's code."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from recollect.verify.engines import Pausable
from recollect.verify.running.faults.chroma_flush import ALONE, FLUSH, flush_obstacle, kill_in_flush
from recollect.verify.running.faults.fault import Fault, ours_only, servers_only
from recollect.verify.running.faults.kill_moments import (
    BETWEEN_WRITES,
    MOMENTS,
    kill_between_writes,
    moment_obstacle,
)
from recollect.verify.running.faults.recorded_engine import record
from recollect.verify.running.scenario import Scenario

if TYPE_CHECKING:
    from recollect.verify.running.run import Run

ONE_WRITER = "one-writer"
"""Only one process writes; what is looked at is the other one, which reads and stays."""

ENOUGH_TIMEOUT_S = 10.0
_STEP_S = 0.05
DOWN_S = 0.05
"""How long the engine stays down before it is started again."""


def _restart(run: Run) -> None:
    with run.striking("restart"):
        run.stop_engine()
        run.go_on(DOWN_S)
        run.start_engine()


def _kill_engine(run: Run) -> None:
    moment = run.scenario.variant
    if moment in (BETWEEN_WRITES, FLUSH):
        (kill_between_writes if moment == BETWEEN_WRITES else kill_in_flush)(run)
        return
    detail = MOMENTS[moment](run) if moment else ""
    with run.striking("kill-engine", detail):
        run.kill_engine()
        run.go_on(DOWN_S)
        run.start_engine()


def _kill_obstacle(scenario: Scenario) -> str | None:
    if scenario.variant in MOMENTS and (reason := moment_obstacle(scenario)) is not None:
        return reason
    if scenario.variant == FLUSH:
        return flush_obstacle(scenario)
    return servers_only(scenario) if scenario.variant == BETWEEN_WRITES else ours_only(scenario)


def _record_flush(run: Run) -> None:
    if run.scenario.variant == FLUSH:
        record(run)


def _kill_app(run: Run) -> None:
    """Kills writers in the middle of what they do, three times over."""
    for _ in range(3):
        if not run.writers:
            run.give_up("no writer was left to kill: they hang, or end by themselves")
        with run.striking("kill-app"):
            run.kill_client(run.rng.choice(run.writers))
        run.start_writers()
        run.go_on(run.scenario.before_s / 6)


def _pause(run: Run) -> None:
    assert isinstance(run.engine, Pausable), "the obstacle keeps embedded engines out"
    with run.striking("pause"):
        run.engine.pause()
        run.go_on(run.scenario.before_s)
        run.engine.resume()


def _none(run: Run) -> None:
    """Nothing breaks: several writers at once are the fault."""
    with run.striking("concurrent-writers", run.scenario.variant):
        run.go_on(run.scenario.before_s)
        end = time.monotonic() + ENOUGH_TIMEOUT_S
        while run.transcript.written < run.workload.enough and time.monotonic() < end:
            run.go_on(_STEP_S)


PROCESS_FAULTS = (
    Fault(
        "restart",
        _restart,
        verifies="what was acknowledged is there after an orderly stop and start, as a deploy or an upgrade makes one",
        does_not_verify="a crash: engines save on the way out, so an orderly stop hides what a crash would lose",
        obstacle=ours_only,
    ),
    Fault(
        "kill-engine",
        _kill_engine,
        verifies="what was acknowledged survives the sudden death of all of the engine's processes",
        does_not_verify="power loss: what was handed to the kernel survives a killed process",
        obstacle=_kill_obstacle,
        record=_record_flush,
        variants=("", *MOMENTS, BETWEEN_WRITES, FLUSH),
        clients=ALONE,
    ),
    Fault(
        "kill-app",
        _kill_app,
        verifies="a writer that dies in the middle of an append leaves whole turns behind, and others go on",
        does_not_verify="dying at one particular line: see kill-app-at-line",
    ),
    Fault(
        "pause",
        _pause,
        verifies="an engine that stands still for a while (SIGSTOP, a stalled machine) loses and doubles nothing",
        does_not_verify="a failover that happens meanwhile: see failover",
        obstacle=servers_only,
    ),
    Fault(
        "concurrent-writers",
        _none,
        verifies="several processes writing into the same sessions do not overwrite each other",
        does_not_verify="writers on different machines with different clocks: see the clock faults",
        variants=("", ONE_WRITER),
        clients={ONE_WRITER: (1, 1)},
    ),
)
