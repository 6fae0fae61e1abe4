"""Backups the way people make them, while the engine is in use, and how each is put back on an empty volume.

A `Backup` has two halves: `make` runs beside the clients, in a thread of its own, and only reads what the engine has;
`put_back` runs when the engine is down and its data is gone. A dump is loaded into a new, empty engine instead.

A server in a container is dumped over its port, by the tools of this machine.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from recollect.verify import providers
from recollect.verify.engines import Endpoint, Engine
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.engines.postgres_programs import programs_of
from recollect.verify.engines.redis import RedisConsole
from recollect.verify.host.errors import NotInstalled
from recollect.verify.host.waiting import wait_until
from recollect.verify.running.faults.consoles import redis_console
from recollect.verify.wire.resp import fields_of

TOOL_TIMEOUT_S = 60.0
_DUMP = "memory.dump"
_SNAPSHOT = "dump.rdb"


@dataclass(frozen=True)
class Backup:
    """One way. `make(engine, endpoint, copy)` fills the folder `copy`; `put_back` fills the engine's empty folder."""

    name: str
    engine: str
    make: Callable[[Engine, Endpoint, Path], None]
    put_back: Callable[[Engine, Path, Path], None] | None = None
    load: Callable[[Engine, Path], Endpoint] | None = None
    """Instead: starts the engine on an empty volume, and fills it."""
    safe: bool = True
    """Whether the engine's documentation calls it a backup; a copy of files in use may be torn."""


# ---- Redis


def _snapshot(engine: Engine, endpoint: Endpoint, copy: Path) -> None:
    """BGSAVE, wait, copy the file: it is replaced by a rename, so it can be copied at any time."""
    redis = redis_console(endpoint)
    wait_until(lambda: not _saving(redis), TOOL_TIMEOUT_S, "another snapshot did not end")
    redis.ask("BGSAVE")
    wait_until(lambda: not _saving(redis), TOOL_TIMEOUT_S, "the snapshot did not end")
    shutil.copy2(_data(engine) / _SNAPSHOT, copy)


def _saving(redis: RedisConsole) -> bool:
    return fields_of(redis.ask("INFO", "persistence"))["rdb_bgsave_in_progress"] != "0"


def _data(engine: Engine) -> Path:
    assert engine.data is not None, "the fault has looked for it"
    return engine.data


def _append_only_files(engine: Engine, endpoint: Endpoint, copy: Path) -> None:
    """The documented way: no rewrite meanwhile, then the folder as it is; its last command may be cut off."""
    redis = redis_console(endpoint)
    redis.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
    wait_until(
        lambda: fields_of(redis.ask("INFO", "persistence"))["aof_rewrite_in_progress"] == "0",
        TOOL_TIMEOUT_S,
        "the rewrite did not end",
    )
    for path in _data(engine).iterdir():
        if path.name.startswith("append"):
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, copy / path.name)


def _into_folder(engine: Engine, data: Path, copy: Path) -> None:
    data.mkdir(0o700, parents=True, exist_ok=True)
    shutil.copytree(copy, data, dirs_exist_ok=True, symlinks=True)


# ---- PostgreSQL


def _pg(engine: Engine) -> tuple[PostgresEngine, list[str]]:
    assert isinstance(engine, PostgresEngine)
    return engine, ["-h", str(engine.socket_folder), "-p", str(engine.port), "-U", cluster.SUPERUSER]


def _run_dump_tool(name: str, engine: Engine, endpoint: Endpoint, words: list[str], copy: Path) -> None:
    if isinstance(engine, PostgresEngine):
        server, where = _pg(engine)
        programs, password, where = server.programs, None, [*where, "-d", "postgres"]
    else:
        programs, password = _programs(engine.version), endpoint.password
        database = urlsplit(endpoint.url).path.removeprefix("/")
        where = ["-h", str(endpoint.host), "-p", str(endpoint.port), "-U", str(endpoint.user), "-d", database]
    cluster.run_tool(programs, name, [*where, *words], copy, TOOL_TIMEOUT_S, password=password)


def _programs(version: str) -> Path:
    """Of the same release: a newer pg_restore sets what an older server does not know."""
    major = version.partition(".")[0]
    for provider in ("system", "wheel"):
        with suppress(NotInstalled):
            return programs_of(providers.find(f"postgres@{major}", provider))
    raise NotInstalled(
        f"pg_dump of PostgreSQL {major} is not on this machine, and the container is dumped from here"
    )


def _dumped(engine: Engine, endpoint: Endpoint, copy: Path) -> None:
    _run_dump_tool("pg_dump", engine, endpoint, ["-Fc", "-f", str(copy / _DUMP)], copy)


def _load_dump(engine: Engine, copy: Path) -> Endpoint:
    endpoint = engine.start()
    _run_dump_tool("pg_restore", engine, endpoint, ["--exit-on-error", str(copy / _DUMP)], copy)
    return endpoint


def _base_backup(wal: str) -> Callable[[Engine, Endpoint, Path], None]:
    def make(engine: Engine, endpoint: Endpoint, copy: Path) -> None:
        server, where = _pg(engine)
        words = [*where, "-D", str(copy / "data"), "-X", wal, "--checkpoint=fast", "--no-sync"]
        cluster.run_tool(server.programs, "pg_basebackup", words, copy, TOOL_TIMEOUT_S)

    return make


def _into_cluster(engine: Engine, data: Path, copy: Path) -> None:
    shutil.copytree(copy / "data", data, symlinks=True)
    cluster.own(data, cluster.identity())


# ---- SQLite, and Chroma on top of it


def _online_backup(engine: Engine, endpoint: Endpoint, copy: Path) -> None:
    """What `.backup` of the sqlite3 shell does."""
    assert endpoint.path is not None
    with (
        closing(sqlite3.connect(endpoint.path, timeout=30)) as source,
        closing(sqlite3.connect(copy / endpoint.path.name)) as target,
    ):
        source.backup(target)


def _plain_copy(engine: Engine, endpoint: Endpoint, copy: Path) -> None:
    """`cp memory.db backup/`, as in many a cron job: without the log beside it, page by page while it is written."""
    assert endpoint.path is not None
    shutil.copyfile(endpoint.path, copy / endpoint.path.name)


def _folder_copy(engine: Engine, endpoint: Endpoint, copy: Path) -> None:
    path = endpoint.path or _data(engine)
    folder = path if path.is_dir() else path.parent
    shutil.copytree(folder, copy, dirs_exist_ok=True, symlinks=True, ignore_dangling_symlinks=True)


BACKUPS: dict[str, Backup] = {
    backup.name: backup
    for backup in (
        Backup("rdb-copy", "redis", _snapshot, _into_folder),
        Backup("aof-copy", "redis", _append_only_files, _into_folder),
        Backup("pg-dump", "postgres", _dumped, load=_load_dump),
        Backup("pg-basebackup", "postgres", _base_backup("stream"), _into_cluster),
        Backup("pg-basebackup-no-wal", "postgres", _base_backup("none"), _into_cluster, safe=False),
        Backup("sqlite-backup", "sqlite", _online_backup, _into_folder),
        Backup("cp", "sqlite", _plain_copy, _into_folder, safe=False),
        Backup("folder-copy", "chroma", _folder_copy, _into_folder, safe=False),
    )
}
