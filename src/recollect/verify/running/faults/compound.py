"""Two faults at once: ``kill-engine+latency``.

One of them lasts: it strikes first and is healed last, and the other strikes and is healed meanwhile. Which one lasts
is the variant, so both orders of healing are tried. A fault that is over in a moment cannot last.

Not every two can be combined. Each has a family, by what it takes hold of: two of one family would pull at the same
thing, and some families need the whole engine for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from recollect.verify.running.faults.fault import Fault, Injection
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.scenario import Scenario

FAMILIES: dict[str, str] = {
    "kill-engine": "engine",
    "restart": "engine",
    "pause": "engine",
    "kill-app": "application",
    "latency": "network",
    "cut": "network",
    "half-open": "network",
    "lost-ack": "network",
    "clock-back": "clock",
    "clock-frozen": "clock",
    "clock-forward": "clock",
    "failover": "replication",
}
EXCLUDE: tuple[frozenset[str], ...] = (
    frozenset({"engine", "replication"}),  # the engine that was killed is not the one that took over
    frozenset({"network", "replication"}),  # the proxy stands before the old primary
)
MOMENTARY = frozenset({"kill-app"})
"""Over as soon as they strike: they cannot last while another one strikes."""
PAIRS: tuple[str, ...] = (
    "kill-engine+latency",
    "kill-engine+clock-back",
    "kill-engine+kill-app",
    "kill-app+latency",
    "failover+clock-back",
    "failover+kill-app",
)
"""Those that `--full` runs: what fails together in practice."""

_PART_VARIANT = {("failover", clock): "target" for clock in ("clock-back", "clock-frozen", "clock-forward")}
"""The replica that takes over has its own clock."""


class CannotCombine(ValueError):
    """The message names the part."""


def is_compound(name: str) -> bool:
    return "+" in name


def combined(name: str, faults: Mapping[str, Fault]) -> Fault:
    """The fault of this name; raises `CannotCombine`."""
    parts = name.split("+")
    if "" in parts:
        side = "after" if parts[0] else "before"
        raise CannotCombine(f"{name}: a fault is missing {side} the +; two at once are e.g. {PAIRS[0]}")
    for part in parts:
        if part not in faults:
            raise CannotCombine(f"{name}: unknown fault {part!r}; known: {', '.join(faults)}")
        if part not in FAMILIES:
            raise CannotCombine(
                f"{name}: {part} cannot be combined with another fault; these can: {', '.join(FAMILIES)}"
            )
    if len(parts) != 2:
        raise CannotCombine(f"{name}: two faults at once, not {len(parts)}")
    first, second = parts
    families = frozenset(FAMILIES[part] for part in parts)
    if len(families) == 1:
        raise CannotCombine(f"{name}: {first} and {second} take hold of the same {FAMILIES[first]}")
    if families in EXCLUDE:
        raise CannotCombine(
            f"{name}: {second} cannot happen together with {first}: one undoes what the other needs"
        )
    return _row(name, faults[first], faults[second])


def _row(name: str, first: Fault, second: Fault) -> Fault:
    lasting = [part.name for part in (second, first) if part.name not in MOMENTARY]

    def obstacle(scenario: Scenario) -> str | None:
        for part, other in ((first, second), (second, first)):
            if (reason := part.obstacle(_of_part(scenario, part.name, other.name))) is not None:
                return f"{part.name}: {reason}"
        return None

    return Fault(
        name,
        lambda run: Both(run, first, second),
        verifies=f"what {first.name} and {second.name} each leave untouched is still there when both strike at once",
        does_not_verify=f"either of them alone: see {first.name} and {second.name}",
        obstacle=obstacle,
        variants=tuple(f"{part}-lasts" for part in lasting),
    )


def _of_part(scenario: Scenario, part: str, other: str) -> Scenario:
    variant = _PART_VARIANT.get((other, part), "")
    return msgspec.structs.replace(scenario, fault=part, variant=variant)


class _PartOfRun:
    """The run as one of two faults sees it: the scenario is its own, and while it lasts, the other strikes."""

    def __init__(self, run: FaultedRun, scenario: Scenario) -> None:
        self._run = run
        self.scenario = scenario
        self.meanwhile: Injection | None = None
        self.engine_is_away = False
        self._striking = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    @contextmanager
    def striking(self, name: str, detail: str = "", offset_s: float = 0.0) -> Iterator[None]:
        with self._run.striking(name, detail, offset_s):
            self._striking = True
            yield
            self._striking = False

    def go_on(self, duration_s: float) -> None:
        self._let_strike()
        self._run.go_on(duration_s)

    def work_on(self, duration_s: float) -> None:
        self._let_strike()
        self._run.work_on(duration_s)

    def _let_strike(self) -> None:
        other, self.meanwhile = (self.meanwhile, None) if self._striking else (None, self.meanwhile)
        if other is not None:
            other.strike()


class Both(Injection):
    def __init__(self, run: FaultedRun, first: Fault, second: Fault) -> None:
        super().__init__(run)
        self._views = [
            _PartOfRun(run, _of_part(run.scenario, part.name, other.name))
            for part, other in ((first, second), (second, first))
        ]
        self._parts = [
            part.inject(cast(FaultedRun, view))
            for part, view in zip((first, second), self._views, strict=True)
        ]
        lasts = run.scenario.variant.removesuffix("-lasts")
        self._lasting = 0 if first.name == lasts or second.name in MOMENTARY else 1
        lasting = (first, second)[self._lasting]
        self._views[1 - self._lasting].engine_is_away = FAMILIES[lasting.name] == "engine"

    def arrange(self) -> None:
        for part in self._parts:
            part.arrange()

    def record(self) -> None:
        for part in self._parts:
            part.record()

    def attach(self) -> None:
        for part in self._parts:
            part.attach()

    def strike(self) -> None:
        lasting, view = self._parts[self._lasting], self._views[self._lasting]
        view.meanwhile = self._parts[1 - self._lasting]
        lasting.strike()
        if view.meanwhile is not None:
            self.run.give_up("the second fault found no time to strike while the first one lasted")
