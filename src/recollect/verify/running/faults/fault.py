"""What a fault is: a named, real thing that happens to the engine or the target while clients write.

`Fault` is its row in the table, `Injection` is the fault in one run: it strikes, lets the clients go on for a while,
and heals. It records what it does in the history through `run.striking`, so that the checkers know what came before
and after. `obstacle` says, before anything is started, why it cannot happen on this engine or target; the cell is then
`skipped` for that reason.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from recollect.guarantees import MADE_OF
from recollect.verify import providers
from recollect.verify.engines import Endpoint
from recollect.verify.host.busy import patient_s
from recollect.verify.host.errors import EngineError
from recollect.verify.providers import docker
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.scenario import Scenario

FORCE, TAKEOVER = "force", "takeover"
"""How several servers fail over: without asking the primary, or without asking anybody."""
ONE_BEHIND = "one-behind"
"""Only the copy that takes over is behind; another one has what was acknowledged."""
AT_ONCE = "at-once"
"""Slots are moved by the engine itself, in one step."""
UNFENCED = "unfenced"
"""Nobody stops the old primary when another one is promoted."""
_STEP_S = 0.05


class Injection(ABC):
    """A fault in one run: its steps, in this order, and the state it keeps between them. Most faults only strike."""

    def __init__(self, run: FaultedRun) -> None:
        self.run = run

    def arrange(self) -> None:  # noqa: B027
        """Called before the engine is made: sets its version, its environment, the clients' clocks."""

    def record(self) -> None:  # noqa: B027
        """Called when the engine is made but not started: its data folder can be recorded from the first call."""

    def attach(self) -> None:  # noqa: B027
        """Called when the engine is up and no client is yet: adds a replica, or a proxy."""

    def unopened(self, why: str) -> None:  # noqa: B027
        """Called when the store does not open: it may be the fault's own doing, and then the run is skipped."""

    @abstractmethod
    def strike(self) -> None:
        """Called while the clients are at work."""

    def go_on_until(self, done: Callable[[], bool], usual_s: float) -> None:
        """Lets the clients go on for as long as it usually takes; on a busy machine for longer, until it is done."""
        begun = time.monotonic()
        self.run.go_on(usual_s)
        while not done() and time.monotonic() < begun + patient_s(usual_s):
            self.run.go_on(_STEP_S)


WITNESS = "witness.json"
"""Its file in the folder of a run."""


class Witnessed(Injection):
    """A store that keeps a witness gets a place for it outside the engine's folder, so that it can notice what the
    fault takes away."""

    def attach(self) -> None:
        witness = str(self.run.folder / WITNESS)

        def with_witness(endpoint: Endpoint) -> Endpoint:
            return replace(endpoint, settings={**endpoint.settings, "witness": witness})

        self.run.clients.show(with_witness)


def always(scenario: Scenario) -> str | None:
    return None


@dataclass(frozen=True)
class Fault:
    """One row of the table. `verifies` and `does_not_verify` are shown to users as they are."""

    name: str
    inject: Callable[[FaultedRun], Injection]
    verifies: str
    does_not_verify: str
    obstacle: Callable[[Scenario], str | None] = always
    variants: tuple[str, ...] = ("",)
    """The ways it can happen; the first is the default, `--full` runs all."""
    usual_variants: int = 1
    """How many of them, counted from the first, run when none is asked for."""
    usual_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Others that run as well, and the engines on which they do."""
    clients: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Variants that need certain numbers of writers and readers, whatever the scenario says."""
    callers: Mapping[str, int] = field(default_factory=dict)
    """Variants in which this many writers share one process and its store: as tasks, or as threads."""
    on_groups: tuple[str, ...] | None = None
    """Its variants that also apply to an engine of several servers; None if it applies to none."""
    named_variant: str = ""
    """What else `--variant` may name, in words: the lines of a store's code are not known beforehand."""


def checked_for_groups(fault: Fault) -> Fault:
    """The same fault, skipped with a reason on engines of several servers that it does not apply to."""

    def obstacle(scenario: Scenario) -> str | None:
        if scenario.engine_kind in MADE_OF and scenario.variant not in (fault.on_groups or ()):
            return f"{scenario.engine_name} has several servers: this happens to one"
        return fault.obstacle(scenario)

    return replace(fault, obstacle=obstacle)


def only(*engines: str, why: str) -> Callable[[Scenario], str | None]:
    """An obstacle for every engine but these."""

    def obstacle(scenario: Scenario) -> str | None:
        return None if scenario.engine_kind in engines else why

    return obstacle


def servers_only(scenario: Scenario) -> str | None:
    if scenario.url is not None:
        return "the engine is yours (--provider url): it is never killed, stopped or reconfigured"
    if scenario.engine_kind == "sqlite" or scenario.policy == "embedded":
        return "the engine lives inside the target's process: there is no server to do this to"
    return None


def ours_only(scenario: Scenario) -> str | None:
    if scenario.url is not None:
        return "the engine is yours (--provider url): it is never killed, stopped or reconfigured"
    return None


_CARRIED = ("docker", "compose")
_NEVER_THE_SAME = {
    "tmpfs": "the data is in the container's memory (docker:tmpfs): it has no files on this machine",
    "anonymous": "an anonymous volume is gone with its container, and this needs a new container on the same data",
}


def container_of(scenario: Scenario) -> str | None:
    """The provider that runs the engine in a container, whose files this machine does not see; None if none does."""
    name = (scenario.provider or "").partition(":")[0]
    if not name:
        try:
            name = providers.find(scenario.engine).provider
        except EngineError:
            return None  # the matrix itself reports an engine that is not there
    return name if name in _CARRIED else None


def mounting_obstacle(scenario: Scenario) -> str | None:
    """Why nothing can be preloaded into the engine's container; None if it can, or if there is no container."""
    return None if container_of(scenario) is None else docker.unmountable()


def files_obstacle(scenario: Scenario) -> str | None:
    """Why the files of the engine's container cannot be reached; None if they can, or if there is no container."""
    if container_of(scenario) is None:
        return None
    storage = (scenario.provider or "").partition(":")[2]
    return _NEVER_THE_SAME.get(storage) or docker.unseen_volumes()


def reachable_data(run: FaultedRun) -> Path:
    """The engine's folder as this machine sees it; a container's may turn out to be in memory."""
    data = run.engine.data
    if data is None:
        run.skip("the data of this container is not in a volume that can be reached from here")
    return data
