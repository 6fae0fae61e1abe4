"""Processes that die or freeze: the engine, or the application."""

from __future__ import annotations

import time
from collections.abc import Sequence

from recollect.guarantees import MADE_OF
from recollect.printable import counted
from recollect.verify.engines import Pausable
from recollect.verify.judging.detection import SEVERAL_CALLERS
from recollect.verify.running.clients import Client
from recollect.verify.running.faults.chroma_flush import ALONE, FLUSH, flush_obstacle, kill_in_flush
from recollect.verify.running.faults.fault import Fault, Injection, ours_only, servers_only
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.faults.groups import of_group
from recollect.verify.running.faults.kill_moments import (
    BETWEEN_WRITES,
    MOMENTS,
    kill_between_writes,
    moment_obstacle,
)
from recollect.verify.running.faults.recorded_engine import Recorded
from recollect.verify.running.scenario import Scenario
from recollect.verify.running.workloads import WORKLOADS
from recollect.verify.running.workloads.intents import CHANGING, reads

ONE_WRITER = "one-writer"
"""Only one process writes; the question is what the other one sees, a reader that stays open."""

SEVERAL_WRITERS = "several-writers"

# `several-callers`: they are tasks if the store is asynchronous, and threads if not.

GIVEN_UP_LEAST = 20
ENOUGH_TIMEOUT_S = 10.0
_STEP_S = 0.05
DOWN_S = 0.05
"""How long the engine stays down before it is started again."""


class Restart(Injection):
    def strike(self) -> None:
        with self.run.striking("restart"):
            self.run.stop_engine()
            self.run.go_on(DOWN_S)
            self.run.start_engine()


class KillEngine(Recorded):
    """At any moment, or at the one the variant names; the recorder is for the moment that only it can see."""

    def record(self) -> None:
        if self.run.scenario.variant == FLUSH:
            super().record()

    def strike(self) -> None:
        moment = self.run.scenario.variant
        if moment == BETWEEN_WRITES:
            kill_between_writes(self.run)
        elif moment == FLUSH:
            kill_in_flush(self)
        else:
            self._kill(MOMENTS[moment](self.run) if moment else "")

    def _kill(self, detail: str) -> None:
        with self.run.striking("kill-engine", detail):
            self.run.kill_engine()
            self.run.go_on(DOWN_S)
            self.run.start_engine()


def _kill_obstacle(scenario: Scenario) -> str | None:
    if scenario.variant in MOMENTS and (reason := moment_obstacle(scenario)) is not None:
        return reason
    if scenario.variant == FLUSH:
        return flush_obstacle(scenario)
    return servers_only(scenario) if scenario.variant == BETWEEN_WRITES else ours_only(scenario)


def worth_killing(writers: Sequence[Client]) -> Sequence[Client]:
    """Those in the middle of a write, and of these the ones that change what is there already: dying between two steps
    takes away what somebody was told is kept."""
    writing = [client for client in writers if client.intent is not None and not reads(client.intent)]
    return [client for client in writing if isinstance(client.intent, CHANGING)] or writing or writers


class KillApp(Injection):
    """Kills writers in the middle of what they do, three times over."""

    def strike(self) -> None:
        run, clients = self.run, self.run.clients
        for _ in range(3):
            if not clients.writers:
                run.give_up("no writer was left to kill: they hang, or end by themselves")
            with run.striking("kill-app"):
                clients.kill(run.rng.choice(worth_killing(clients.writers)))
            clients.start_writers()
            run.go_on(run.scenario.before_s / 6)


def _pause(run: FaultedRun) -> Injection:
    return of_group("pause", run) if run.scenario.engine_kind in MADE_OF else Pause(run)


class Pause(Injection):
    def strike(self) -> None:
        engine = self.run.engine
        assert isinstance(engine, Pausable), "the obstacle keeps embedded engines out"
        with self.run.striking("pause"):
            engine.pause()
            self.run.go_on(self.run.scenario.before_s)
            engine.resume()


class Undisturbed(Injection):
    """Nothing breaks: clients use the store, one of them or several."""

    def strike(self) -> None:
        run, enough = self.run, WORKLOADS[self.run.scenario.workload].enough
        with run.striking(run.scenario.fault, run.scenario.variant):
            run.work_on(run.scenario.before_s)
            end = time.monotonic() + ENOUGH_TIMEOUT_S
            while run.written < enough and time.monotonic() < end and run.scenario.ops_max is None:
                run.go_on(_STEP_S)


class Cancel(Injection):
    """Callers give up at random moments, the last of them as the reply comes in."""

    def strike(self) -> None:
        run, clients = self.run, self.run.clients
        if not clients.is_async:
            run.skip("the store is synchronous: its calls cannot be cancelled")
        with run.striking("cancel"):
            clients.impatience = run.rng
            run.work_on(run.scenario.before_s)
            end = time.monotonic() + ENOUGH_TIMEOUT_S
            while clients.given_up < GIVEN_UP_LEAST and time.monotonic() < end and not run.scenario.ops_max:
                run.go_on(_STEP_S)
            clients.impatience = None
        if not clients.given_up:
            run.give_up("no caller could give up: each operation had already ended")
        run.remark(f"callers gave up {counted(clients.given_up, 'operation')}")


PROCESS_FAULTS = (
    Fault(
        "none",
        Undisturbed,
        verifies="with nothing broken, a store keeps what it is given by one writer, by several, and by several"
        " tasks or threads that share one store",
        does_not_verify="anything that breaks; a bug found here is present in every other cell too",
        variants=(ONE_WRITER, SEVERAL_WRITERS, SEVERAL_CALLERS),
        usual_variants=3,
        on_groups=(ONE_WRITER, SEVERAL_WRITERS, SEVERAL_CALLERS),
        clients={ONE_WRITER: (1, 1)},
        callers={SEVERAL_CALLERS: 3},
    ),
    Fault(
        "restart",
        Restart,
        verifies="what was acknowledged is there after an orderly stop and start, such as a deploy or an upgrade",
        does_not_verify="a crash: engines save on the way out, so an orderly stop hides what a crash would lose",
        obstacle=ours_only,
        on_groups=("",),
    ),
    Fault(
        "kill-engine",
        KillEngine,
        verifies="what was acknowledged survives the sudden death of all of the engine's processes",
        does_not_verify="power loss: what was handed to the kernel survives a killed process",
        obstacle=_kill_obstacle,
        variants=("", *MOMENTS, BETWEEN_WRITES, FLUSH),
        clients=ALONE,
        on_groups=("",),
    ),
    Fault(
        "kill-app",
        KillApp,
        verifies="a writer that dies in the middle of an append leaves only whole turns, and others go on",
        does_not_verify="dying at one particular line: see kill-app-at-line",
        on_groups=("",),
    ),
    Fault(
        "pause",
        _pause,
        verifies="an engine that freezes for a while (SIGSTOP, a stalled machine) loses nothing and duplicates nothing",
        does_not_verify="a failover that happens meanwhile: see failover; of several servers one primary freezes, and"
        " another takes over",
        obstacle=servers_only,
        on_groups=("",),
    ),
    Fault(
        "concurrent-writers",
        Undisturbed,
        verifies="several processes writing into the same sessions do not overwrite each other",
        does_not_verify="writers on different machines with different clocks: see the clock faults",
        variants=("", ONE_WRITER, SEVERAL_CALLERS),
        clients={ONE_WRITER: (1, 1), SEVERAL_CALLERS: (4, 1)},
        callers={SEVERAL_CALLERS: 2},
        on_groups=("", ONE_WRITER, SEVERAL_CALLERS),
    ),
    Fault(
        "cancel",
        Cancel,
        verifies="callers of one asynchronous store that give up at random moments (a closed request, a timeout) leave"
        " only whole turns, stored once; nobody gets another caller's answer, and afterwards everything is readable",
        does_not_verify="every moment at which a caller can give up: see recollect explore --interleavings --cancel",
        callers={"": 3},
        on_groups=("",),
    ),
)
