"""What a provider offers, and how it describes what it lacks."""

from __future__ import annotations

import functools
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Build:
    """One runnable engine: a binary, an image, an address."""

    engine: str
    product: str
    """Its real name: Valkey is not Redis, though it speaks the same protocol."""
    version: str
    provider: str
    location: str
    """The server's path, the image, or the address (without credentials)."""
    features: tuple[str, ...] = ()
    by_version: bool = False
    """It is only used when its version is asked for: it lies beside the one that is installed."""

    def matches(self, version: str | None) -> bool:
        """`7` and `7.0` match 7.0.15; `7.1` and `70` do not."""
        if version is None:
            return True
        wanted = version.split(".")
        return self.version.split(".")[: len(wanted)] == wanted


@dataclass(frozen=True)
class Gap:
    """Something a provider could offer but does not have, with the command that gets it."""

    engine: str
    version: str
    provider: str
    reason: str
    command: str


def sort_key(build: Build) -> tuple[bool, bool, tuple[int, ...]]:
    """Newest first when sorted in reverse; Redis before Valkey, which must be asked for by name, and what is installed
    before other releases."""
    return (
        build.product != "Valkey",
        not build.by_version,
        tuple(int(part) for part in re.findall(r"\d+", build.version)),
    )


_BANNERS = {
    "redis": re.compile(r"^(?P<product>Redis|Valkey) server v=(?P<version>[\d.]+)"),
    "postgres": re.compile(r"^postgres \((?P<product>PostgreSQL)\) (?P<version>[\d.]+)"),
}


def inspect(engine: str, binary: Path, provider: str) -> Build | None:
    """Ask a server binary what it is; None if it does not run here or is something else."""
    try:
        changed_ns = binary.stat().st_mtime_ns
    except OSError:
        return None
    banner = _banner(str(binary), changed_ns)
    found = _BANNERS[engine].match(banner)
    if found is None:
        return None
    return Build(
        engine,
        found["product"],
        found["version"].rstrip("."),
        provider,
        str(binary),
        _features(engine, binary),
    )


@functools.cache
def _banner(binary: str, changed_ns: int) -> str:
    """`changed_ns` is in the key, so that an upgraded binary is asked again."""
    try:
        # Never resolve the path: Debian's redis-server is a symlink to redis-check-rdb, which decides by argv[0].
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


@functools.cache
def _features(engine: str, binary: Path) -> tuple[str, ...]:
    if engine != "postgres":
        return ()
    for share in _share_folders(binary):
        control = share / "extension" / "vector.control"
        if control.is_file():
            version = re.search(r"default_version = '([^']+)'", control.read_text())
            return (f"pgvector {version[1] if version else '?'}",)
    return ()


def _share_folders(binary: Path) -> list[Path]:
    """Where extensions are: the plain layout, and Debian's."""
    home = binary.parent.parent
    return [home / "share" / "postgresql", home / "share", Path("/usr/share/postgresql") / home.name]
