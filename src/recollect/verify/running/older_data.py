"""Older data (`--data`): which engine wrote it, and how that engine gets a copy.

A format is recognised by what the engine itself looks at first: the magic of a file, or a file that only its data
folder has. Whatever is not in `FORMATS` is refused, with what would be recognised. The original is only ever read: a
run starts its engine on a copy.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recollect.verify.engines import Engine
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host.errors import EngineError

LOAD_TIMEOUT_S = 600.0
_HEAD_BYTES = 4096


class BadData(Exception):
    """It cannot be used; the message names it and says what could."""


@dataclass(frozen=True)
class Format:
    """One row of the table."""

    called: str
    engine: str
    policies: tuple[str, ...]
    """Those that load it; the first is the default."""
    fits: Callable[[Path], bool]
    copy: Callable[[Path, Path], None]
    """`copy(source, data)` fills the engine's data folder, which is there and empty."""
    load: Callable[[Engine, Path, Path], None] | None = None
    """`load(engine, source, work)` puts it into the running, empty engine instead."""
    version: Callable[[Path], str | None] = lambda source: None
    """The only version that takes it."""


@dataclass(frozen=True)
class OlderData:
    """What was recognised."""

    path: Path
    format: Format

    def policy_for(self, asked: str | None) -> str:
        if asked is None:
            return self.format.policies[0]
        if asked not in self.format.policies:
            raise BadData(
                f"--policy {asked}: {self.format.called} is loaded under {' or '.join(self.format.policies)}; leave "
                "--policy out"
            )
        return asked

    def engine_for(self, asked: str | None) -> str:
        """The engine as a run asks for it, with its version. `asked` is what the target runs on, if that is known."""
        version = self.format.version(self.path)
        ours = self.format.engine if version is None else f"{self.format.engine}@{version}"
        if asked is None:
            return ours
        name, _, wanted = asked.partition("@")
        if {"valkey": "redis"}.get(name, name) != self.format.engine:
            raise BadData(
                f"--data {self.path} is {self.format.called}, for {self.format.engine}, and the target runs on {name}"
            )
        if version is not None and wanted and wanted.split(".")[0] != version:
            raise BadData(
                f"--data {self.path} is {self.format.called} of version {version}, and {asked} does not start on it; "
                "run pg_upgrade on a copy first, or give a pg_dump"
            )
        return asked if wanted else f"{name}@{version}" if version is not None else name


def recognise(path: Path) -> OlderData:
    """Raises `BadData` if it is of no known format, or cannot be copied while it is in use."""
    if not path.exists():
        raise BadData(f"--data {path}: there is no such file or folder")
    try:
        found = next((row for row in FORMATS if row.fits(path)), None)
    except OSError as error:
        raise BadData(f"--data {path}: {error.strerror or error}") from None
    if found is None:
        known = "; ".join(dict.fromkeys(row.called for row in FORMATS))
        raise BadData(f"--data {path} is of no known format; known are {known}")
    if found.engine == "postgres" and path.is_dir() and _in_use(path / "postmaster.pid"):
        raise BadData(
            f"--data {path} is in use by a running server, and a copy of it would be torn: stop the server, or give a "
            "pg_basebackup or a pg_dump"
        )
    if found.engine == "postgres" and path.is_dir():
        _check_links(path)
    return OlderData(path.absolute(), found)


def _check_links(cluster_folder: Path) -> None:
    """The log and the tablespaces may be elsewhere, behind links; a folder that was copied without them is torn."""
    for link in (cluster_folder / "pg_wal", *(cluster_folder / "pg_tblspc").glob("*")):
        if link.is_symlink() and not link.exists():
            name = link.relative_to(cluster_folder)
            raise BadData(
                f"--data {cluster_folder} lacks {name}: it is a link to {link.readlink()}, which is not here; copy "
                "that too, or give a pg_dump"
            )


# ---- what files look like


def _head(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def _starts(*magic: bytes) -> Callable[[Path], bool]:
    return lambda path: _head(path).startswith(magic)


def _is_sql_dump(path: Path) -> bool:
    return b"-- PostgreSQL database dump" in _head(path)


def _is_tar_dump(path: Path) -> bool:
    head = _head(path)
    return head[257:262] == b"ustar" and head.startswith(b"toc.dat\0")


def _has(*names: str) -> Callable[[Path], bool]:
    return lambda path: path.is_dir() and any((path / name).exists() for name in names)


def _databases(path: Path) -> list[Path]:
    """The SQLite files directly in a folder."""
    return [entry for entry in sorted(path.iterdir()) if _is_sqlite(entry)] if path.is_dir() else []


_is_sqlite = _starts(b"SQLite format 3\0")


def _in_use(pid_file: Path) -> bool:
    """Whether the server that wrote the file is still there; one that was killed leaves it too."""
    try:
        pid = int(pid_file.read_text().split()[0])
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, ValueError, IndexError):
        return False
    return True


# ---- copying


def _folder(source: Path, data: Path) -> None:
    """Links are followed: an engine that finds one in its copy would write to what it names, which is the original."""
    shutil.copytree(source, data, dirs_exist_ok=True, copy_function=_copy_file, ignore=_left_out)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """A pid file belongs to the server that wrote it; sockets and pipes are not data."""
    return {
        name
        for name in names
        if name in ("postmaster.pid", "postmaster.opts") or not _is_data(Path(folder) / name)
    }


def _is_data(path: Path) -> bool:
    """A file, or a folder that is not one of those it is in, itself or behind a link."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # a link to nothing
        return False
    if stat.S_ISDIR(mode) and path.is_symlink():
        return not path.parent.resolve().is_relative_to(path.resolve())
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def _copy_file(source: str, target: str) -> str:
    """Only the content: the copy is ours to write, whatever the original's rights are."""
    return shutil.copyfile(source, target)


def _cluster(source: Path, data: Path) -> None:
    """Some systems keep the configuration elsewhere; the server wants the files, and we set what matters."""
    _folder(source, data)
    for name in ("postgresql.conf", "pg_ident.conf"):
        (data / name).touch()


def _as(name: str) -> Callable[[Path, Path], None]:
    def copy(source: Path, data: Path) -> None:
        shutil.copyfile(source, data / name)

    return copy


def _sqlite_file(source: Path, data: Path) -> None:
    """With the log or journal beside it, which has what is not in the file yet. Behind a link, it is beside what the
    link names."""
    source = source.resolve()
    for suffix in ("", "-wal", "-journal"):
        beside = source.with_name(source.name + suffix)
        if beside.exists():
            shutil.copyfile(beside, data / f"memory.db{suffix}")


def _only_sqlite_file(source: Path, data: Path) -> None:
    _sqlite_file(_databases(source)[0], data)


def _nothing(source: Path, data: Path) -> None:
    """It is loaded into an empty engine."""


# ---- loading dumps


def _tool(engine: Engine, work: Path, name: str, words: list[str]) -> None:
    assert isinstance(engine, PostgresEngine)
    where = [
        "-h",
        str(engine.socket_folder),
        "-p",
        str(engine.port),
        "-U",
        cluster.SUPERUSER,
        "-d",
        "postgres",
    ]
    try:
        cluster.run_tool(engine.programs, name, [*where, *words], work, LOAD_TIMEOUT_S)
    except EngineError as error:
        raise BadData(f"--data: the dump cannot be loaded: {error}") from None


def _restore(engine: Engine, source: Path, work: Path) -> None:
    """Owners, rights and tablespaces stay behind: the roles and disks of the other server are not here."""
    _tool(
        engine,
        work,
        "pg_restore",
        ["--no-owner", "--no-privileges", "--no-tablespaces", "--exit-on-error", _readable(source, work)],
    )


def _run_sql(engine: Engine, source: Path, work: Path) -> None:
    _tool(engine, work, "psql", ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", _readable(source, work)])


def _readable(source: Path, work: Path) -> str:
    """A copy: the server's user may not be able to read the original."""
    copy = work / "dump"
    if source.is_dir():
        _folder(source, copy)
        for path in copy.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
    else:
        shutil.copyfile(source, copy)
    copy.chmod(0o755 if source.is_dir() else 0o644)
    return str(copy)


def _major(path: Path) -> str | None:
    return (path / "PG_VERSION").read_text().strip()


_APPENDING = ("aof-everysec", "aof-always", "aof-no", "mixed")
_SQLITE = ("wal-full", "wal-normal", "delete-full", "delete-extra")

FORMATS: tuple[Format, ...] = (
    Format("a SQLite file", "sqlite", _SQLITE, _is_sqlite, _sqlite_file),
    Format("an RDB file of Redis", "redis", ("rdb",), _starts(b"REDIS", b"VALKEY"), _as("dump.rdb")),
    Format("a PostgreSQL dump", "postgres", ("default",), _starts(b"PGDMP"), _nothing, _restore),
    Format("a PostgreSQL dump", "postgres", ("default",), _is_tar_dump, _nothing, _restore),
    Format("a PostgreSQL dump", "postgres", ("default",), _is_sql_dump, _nothing, _run_sql),
    Format("a PostgreSQL dump", "postgres", ("default",), _has("toc.dat"), _nothing, _restore),
    Format(
        "a PostgreSQL data folder",
        "postgres",
        ("default", "async-commit", "fsync-off"),
        _has("PG_VERSION"),
        _cluster,
        version=_major,
    ),
    Format("a Chroma folder", "chroma", ("embedded", "server"), _has("chroma.sqlite3"), _folder),
    Format(
        "a Redis folder with append-only files",
        "redis",
        _APPENDING,
        _has("appendonlydir", "appendonly.aof"),
        _folder,
    ),
    Format("a Redis folder with a dump.rdb", "redis", ("rdb",), _has("dump.rdb"), _folder),
    Format(
        "a folder with one SQLite file",
        "sqlite",
        _SQLITE,
        lambda path: len(_databases(path)) == 1,
        _only_sqlite_file,
    ),
)
