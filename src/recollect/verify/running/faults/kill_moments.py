"""The named moments of `kill-engine`: what has to be going on when the engine dies.

Each is brought about, and checked right before the kill: what the engine said about itself then is the detail of the
fault in the history. If a moment cannot be reached, there is no verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from recollect.verify.engines import Counting
from recollect.verify.engines.redis import RedisConsole
from recollect.verify.running.faults.at_line import guest_writes, watching
from recollect.verify.running.faults.consoles import redis_console
from recollect.verify.running.faults.fault import only
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.scenario import Scenario
from recollect.verify.target import pipe
from recollect.verify.wire.resp import fields_of

CHILD_DELAY_US = 1_000_000
"""How long Redis's own debugging option makes its saving child wait after each key."""

CHILD_TIMEOUT_S = 3.0
WORK_S = 0.05
"""How long clients go on writing beside the child, or after the snapshot."""

BETWEEN_WRITES = "between-writes"


def during_bgsave(run: FaultedRun) -> str:
    return _beside_a_child(run, "BGSAVE", "rdb_bgsave_in_progress")


def during_bgrewriteaof(run: FaultedRun) -> str:
    return _beside_a_child(run, "BGREWRITEAOF", "aof_rewrite_in_progress")


def after_snapshot(run: FaultedRun) -> str:
    redis = redis_console(run.endpoint)
    redis.ask("SAVE")
    run.go_on(WORK_S)
    return f"after-snapshot: {redis.written()} changes since the snapshot"


def _beside_a_child(run: FaultedRun, command: str, flag: str) -> str:
    """Starts the child that saves or rewrites, slowed down key by key, and lets clients write beside it."""
    redis = redis_console(run.endpoint)
    redis.ask("CONFIG", "SET", "rdb-key-save-delay", str(CHILD_DELAY_US))
    redis.ask(command)
    end = time.monotonic() + CHILD_TIMEOUT_S
    while _persistence(redis)[flag] != "1":
        if time.monotonic() > end:
            run.give_up(f"{command} did not begin within {CHILD_TIMEOUT_S:g} s")
        run.go_on(0.002)
    run.go_on(WORK_S)
    now = _persistence(redis)
    if now[flag] != "1":
        run.give_up(f"{command} had ended before the engine could be killed in the middle of it")
    saved, all_keys = now.get("current_save_keys_processed", "?"), now.get("current_save_keys_total", "?")
    return f"{command.lower()}: {saved} of {all_keys} keys are saved"


def _persistence(redis: RedisConsole) -> dict[str, str]:
    return fields_of(redis.ask("INFO", "persistence"))


BESIDE_A_CHILD: dict[str, Callable[[FaultedRun], str]] = {
    "bgsave": during_bgsave,
    "bgrewriteaof": during_bgrewriteaof,
}
MOMENTS = {**BESIDE_A_CHILD, "after-snapshot": after_snapshot}


def moment_obstacle(scenario: Scenario) -> str | None:
    return only("redis", why=f"the moment {scenario.variant!r} is one of Redis")(scenario)


# ---- between the two writes of a turn


def kill_between_writes(run: FaultedRun) -> None:
    """Kills the engine while a guest is stopped at a line where one write of its turn is done and the other is not.

    Everybody else is quiet meanwhile, so any write the engine has counted since is the guest's.
    """
    engine = run.engine
    if not isinstance(engine, Counting):
        run.skip(f"{engine.name} cannot be asked what was written to it")
    run.settle()
    line = run.rng.choice(_lines_between(run, engine))
    guest = watching(run, pipe.Watch("stop", line))
    before = engine.written()
    killed = False

    def kill(at: str) -> None:
        nonlocal killed
        if engine.written() > before:
            run.kill_engine()
            killed = True

    with run.striking("kill-engine", f"{BETWEEN_WRITES}: at {line}"):
        guest_writes(run, guest, kill)
        if killed:
            run.start_engine()
    run.clients.dismiss(guest)
    if not killed:
        run.give_up(f"an append had written a part of its turn at {line} before, and nothing this time")


def _lines_between(run: FaultedRun, engine: Counting) -> list[str]:
    """The lines of an append at which the engine has a part of it, and not yet all."""
    guest = watching(run, pipe.Watch("step"))
    stops: list[tuple[str, int]] = []
    before = engine.written()
    guest_writes(run, guest, lambda at: stops.append((at, engine.written())))
    run.clients.dismiss(guest)
    found = [line for line, written in stops if before < written < engine.written()]
    if not found:
        run.skip("an append of this store is one write: there is no moment between two of them")
    return found
