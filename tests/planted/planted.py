"""What a planted store declares: the cell that must catch it, and what that cell says of its twin without the bug."""

import importlib
import pkgutil
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.verify.judging.verdict import Verdict
from recollect.verify.running.scenario import Scenario


@dataclass(frozen=True)
class Planted:
    """A module with one of these has two factories: `factory` makes the store with the bug, `twin` the same store
    without it. Both run in the same cell."""

    engine: str
    policy: str
    fault: str
    workload: str
    anomalies: tuple[str, ...]
    """The name under which it is caught; any of them, where the interleaving decides which comes first."""
    without: tuple[str, ...] = ()
    """Names that the same bug must not get beside them: one bug is one finding."""
    status: str = "violated"
    """Or `documented-loss`, where the engine's own documentation allows what the store did not guard against."""
    twin_status: str = "held"
    """Or `documented-loss`, where the promise allows a loss that no store can prevent, or one that is told loudly."""
    twin_without: tuple[str, ...] = ()
    """What the twin's cell must not show, whatever the promise allows."""
    variant: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the scenario: sessions, previous, retain_s …"""
    twin_more: dict[str, Any] = field(default_factory=dict)
    """What the twin needs instead: its own other release."""
    asked_for: tuple[str, ...] = ()
    """Options without which `recollect verify` does not look for it: its fault is not among the default ones, because a
    minute is too short for everything that an engine can refuse, and for every backup."""

    def scenario(self, module: str, seed: int, path: tuple[str, ...] = (), *, twin: bool = False) -> Scenario:
        return Scenario(
            target=f"{module}:{'twin' if twin else 'factory'}",
            engine=self.engine,
            policy=self.policy,
            fault=self.fault,
            workload=self.workload,
            variant=self.variant,
            seed=seed,
            path=path,
            **(self.more | self.twin_more if twin else self.more),
        )

    def catches(self, verdict: Verdict) -> bool:
        """The status that was declared, under one of the names that were declared."""
        names = {anomaly.name for anomaly in verdict.anomalies}
        named = bool(names & set(self.anomalies)) and not names & set(self.without)
        return verdict.status == self.status and named

    def clears(self, verdict: Verdict) -> bool:
        """The twin is not accused, and its run did conclude something."""
        names = {anomaly.name for anomaly in verdict.anomalies}
        return verdict.status in ("held", self.twin_status) and not names & set(self.twin_without)


def catalogue() -> dict[str, Planted]:
    """Every planted store by the name of its module."""
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        planted = getattr(importlib.import_module(f"tests.planted.{module.name}"), "PLANTED", None)
        if planted is not None:
            found[module.name] = planted
    return found


def told(verdict: Verdict) -> str:
    """What a verdict says, in one line."""
    names = ", ".join(sorted({anomaly.name for anomaly in verdict.anomalies}))
    return ": ".join(part for part in (verdict.status, names, verdict.reason or "") if part)


WITHOUT_A_STORE: dict[str, str] = dict.fromkeys(
    ("raised", "hang"), "looked for in interleavings alone: see tests/interleavings/cells.py"
)
"""Faults and anomalies that no planted store can be caught through or under, and why."""


def by_fault() -> dict[str, list[str]]:
    """Which planted stores are caught through each fault."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, planted in catalogue().items():
        found[planted.fault].append(name)
    return found


def by_anomaly() -> dict[str, list[str]]:
    """Which planted stores prove that a name is found: those that may be caught under no other."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, planted in catalogue().items():
        if len(planted.anomalies) == 1:
            found[planted.anomalies[0]].append(name)
    return found
