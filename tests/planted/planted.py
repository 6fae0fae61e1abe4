"""What a planted store declares: the cell that must catch it, and the names it may be caught under."""

import importlib
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.verify.running.scenario import Scenario


@dataclass(frozen=True)
class Planted:
    engine: str
    policy: str
    fault: str
    workload: str
    anomalies: tuple[str, ...]
    """Any of these; more than one where the interleaving decides which comes first."""
    status: str = "violated"
    """Or `documented-loss`, where the engine's own documentation allows what the store did not guard against."""
    variant: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the scenario: sessions, previous, retain_s …"""

    def scenario(self, module: str, seed: int, path: tuple[str, ...] = ()) -> Scenario:
        return Scenario(
            target=f"{module}:factory",
            engine=self.engine,
            policy=self.policy,
            fault=self.fault,
            workload=self.workload,
            variant=self.variant,
            seed=seed,
            path=path,
            **self.more,
        )


def catalogue() -> dict[str, Planted]:
    """Every planted store by the name of its module."""
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        planted = getattr(importlib.import_module(f"tests.planted.{module.name}"), "PLANTED", None)
        if planted is not None:
            found[module.name] = planted
    return found
