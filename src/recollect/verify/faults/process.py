"""Processes that end or stand still: the engine, the application, or one exact line of the store's code."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from recollect.verify.faults.fault import Fault, ours_only, servers_only
from recollect.verify.scenario import Scenario

if TYPE_CHECKING:
    from recollect.verify.runner import Run

DOWN_S = 0.05
"""How long the engine stays down before it is started again."""

CHILD_DELAY_US = 300_000
"""What Redis's own debugging option makes its saving child wait after each key."""

CHILD_TIMEOUT_S = 3.0


def _restart(run: Run) -> None:
    with run.striking("restart"):
        run.stop_engine()
        run.go_on(DOWN_S)
        run.start_engine()


def _kill_engine(run: Run) -> None:
    moment = run.scenario.variant
    if moment == "after-snapshot":
        _ask(run, "SAVE")
        run.go_on(DOWN_S)
    with run.striking("kill-engine", moment):
        if moment in ("bgsave", "bgrewriteaof"):
            _begin_slowly(run, moment)
        run.kill_engine()
        run.go_on(DOWN_S)
        run.start_engine()


def _begin_slowly(run: Run, command: str) -> None:
    """Starts the child that saves or rewrites, slowed down key by key, and returns once it is at work."""
    _ask(run, "CONFIG", "SET", "rdb-key-save-delay", str(CHILD_DELAY_US))
    _ask(run, command.upper())
    field = {"bgsave": "rdb_bgsave_in_progress:1", "bgrewriteaof": "aof_rewrite_in_progress:1"}[command]
    end = time.monotonic() + CHILD_TIMEOUT_S
    while field not in str(_ask(run, "INFO", "persistence")):
        if time.monotonic() > end:
            run.give_up(f"{command} did not begin within {CHILD_TIMEOUT_S:g} s")
        run.go_on(0.002)
    run.go_on(DOWN_S)


def _ask(run: Run, *words: str) -> object:
    from recollect.verify.engines.redis import RedisEngine

    assert isinstance(run.engine, RedisEngine)
    return run.engine.ask(*words)


def _kill_obstacle(scenario: Scenario) -> str | None:
    if scenario.variant and scenario.engine_name != "redis":
        return f"the moment {scenario.variant!r} is one of Redis"
    return ours_only(scenario)


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
    with run.striking("pause"):
        run.pause_engine()
        run.go_on(run.scenario.before_s)
        run.resume_engine()


def _none(run: Run) -> None:
    """Nothing breaks: several writers at once are the fault."""
    with run.striking("concurrent-writers"):
        run.go_on(run.scenario.before_s)


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
        variants=("", "bgsave", "bgrewriteaof", "after-snapshot"),
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
    ),
)
