"""What a fault is: a named, real thing that happens to the engine or the target while clients write.

A fault is a small script over a `Run`: it strikes, lets the clients go on for a while, and heals. It records what it
does in the history through `run.striking`, so that the checkers know what came before and after. `obstacle` says,
before anything is started, why it cannot happen on this engine or target; the cell is then `skipped` for that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recollect.verify import providers
from recollect.verify.host.errors import EngineError
from recollect.verify.running.scenario import Scenario

if TYPE_CHECKING:
    from recollect.verify.running.run import Run


def nothing(run: Run) -> None:
    """Most faults need nothing before the engine starts."""


def give_witness(run: Run) -> None:
    """A place outside the engine's folder, for a store that keeps a witness: what a fault empties, it can notice."""
    settings = {**run.endpoint.settings, "witness": str(run.folder / "witness.json")}
    run.endpoint = replace(run.endpoint, settings=settings)


def always(scenario: Scenario) -> str | None:
    return None


@dataclass(frozen=True)
class Fault:
    """One row of the table. `verifies` and `does_not_verify` are shown to users as they are."""

    name: str
    strike: Callable[[Run], None]
    verifies: str
    does_not_verify: str
    obstacle: Callable[[Scenario], str | None] = always
    arrange: Callable[[Run], None] = nothing
    """Runs before the engine starts: its version, its environment."""
    attach: Callable[[Run], None] = nothing
    """Runs when the engine is up and no client is: a replica, a proxy."""
    record: Callable[[Run], None] = nothing
    """Runs when the engine exists and before it starts: its data folder can be recorded from the first call."""
    variants: tuple[str, ...] = ("",)
    """The ways it can happen; the first is the default, `--full` runs all."""
    clients: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Variants that need certain numbers of writers and readers, whatever the scenario says."""
    named_variant: str = ""
    """What else `--variant` may name, in words: the lines of a store's code are not known beforehand."""


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


def container_of(scenario: Scenario) -> str | None:
    """The provider that runs the engine in a container, whose files this machine does not see; None if none does."""
    name = (scenario.provider or "").partition(":")[0]
    if not name:
        try:
            name = providers.find(scenario.engine).provider
        except EngineError:
            return None  # the matrix has its own words for an engine that is not there
    return name if name in _CARRIED else None
