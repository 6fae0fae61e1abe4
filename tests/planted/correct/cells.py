"""A cell that must not accuse a correct store."""

import importlib
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.verify.running.scenario import Scenario

PACKAGE = "tests.planted.correct"


@dataclass(frozen=True)
class Cell:
    engine: str
    policy: str
    fault: str
    """Or `explore`: every crash state of one recorded run."""
    workload: str = "turns"
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the scenario."""
    accused: str = ""
    """Why it is accused today, in one sentence; empty where it is not."""

    def scenario(self, name: str, seed: int, path: tuple[str, ...] = ()) -> Scenario:
        return Scenario(
            target=target(name),
            engine=self.engine,
            policy=self.policy,
            fault=self.fault,
            workload=self.workload,
            seed=seed,
            path=path,
            **self.more,
        )


def target(name: str) -> str:
    return f"{PACKAGE}.{name}:factory"


def correct_stores() -> dict[str, tuple[Cell, ...]]:
    """The cells of every correct store, by the name of its module."""
    modules = {
        module.name: importlib.import_module(f"{PACKAGE}.{module.name}")
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
    }
    return {name: module.CELLS for name, module in modules.items() if hasattr(module, "factory")}
