"""Putting an engine on one crash state after another, as fast as the engine allows.

Starting a server for each of thousands of states is most of the time that exploring takes, so each engine is
recovered in the cheapest way in which it still does its own, real recovery:

sqlite, chroma (embedded)  the store opens the files itself; there is no server
redis with an AOF          one server stays up and loads its AOF anew (`DEBUG LOADAOF`), as it would at a start.
                           When it dies of anything but a damaged AOF, the state is tried again with a real
                           start, whose answer counts
postgres, redis otherwise  a real start and a kill, in a folder of which only the difference is rewritten

`recover` raises EngineError when the engine refuses to start: a finding, not a failure of ours.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from recollect.verify.disk.image import Image
from recollect.verify.disk.workspace import Workspace
from recollect.verify.engines import Endpoint, EngineError, Options, create, policies
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.redis import RedisEngine, configuration_lines
from recollect.verify.host import processes
from recollect.verify.wire.resp import Connection, RespError

_MEMORY_FILES = Path("/dev/shm")
_ROOM_BYTES = 4 << 30
START_TIMEOUT_S = 20.0
_REFUSAL = "Bad file format reading the append only file"
"""What Redis says in the same words, and ends, whether it loads its AOF at a start or later."""


def never_read(spec: str) -> Callable[[str], bool]:
    """Paths whose content recovery does not look at, so that states which differ in nothing else are one state.

    SQLite builds its shared-memory file anew. PostgreSQL deletes its cached catalogues (`pg_internal.init`) before it
    replays anything, and writes `postmaster.opts` for people.
    """
    if spec.startswith("sqlite"):
        return lambda path: path.endswith("-shm")
    if spec.startswith("postgres"):
        return lambda path: "pg_internal.init" in path or path == "postmaster.opts"
    return lambda path: False


class Recovery(Protocol):
    """One worker's engine."""

    def recover(self, image: Image) -> Endpoint:
        """The engine's files are this image, and it has recovered on them. EngineError: it refuses to."""

    def close(self) -> None: ...


def recovery(spec: str, policy: str, *, limit_bytes: int = 1 << 30) -> Recovery:
    """The way to recover this engine under this policy."""
    name = spec.partition("@")[0]
    return _RECOVERIES.get(name, ServerRecovery)(spec, policy, limit_bytes)


def _home() -> Path:
    """In memory where there is plenty: what is put there is thrown away a moment later."""
    roomy = _MEMORY_FILES.is_dir() and shutil.disk_usage(_MEMORY_FILES).free > _ROOM_BYTES
    made = Path(tempfile.mkdtemp(prefix="recollect-states-", dir=_MEMORY_FILES if roomy else None))
    processes.remove_at_end(made)
    made.chmod(0o711)
    return made


class FileRecovery:
    """An embedded engine: the image is laid out, and whoever opens it recovers it."""

    def __init__(self, spec: str, policy: str, limit_bytes: int) -> None:
        self._home = _home()
        self._workspace = Workspace(self._home / "data", limit_bytes=limit_bytes)
        settings = policies(spec)[policy].settings
        data = self._workspace.folder
        name = spec.partition("@")[0]
        path = data / "memory.db" if name == "sqlite" else data
        self._endpoint = Endpoint(
            f"{name}:///{path}", name, name, "", policy, "", path=path, settings=settings
        )

    def recover(self, image: Image) -> Endpoint:
        self._workspace.become(image)
        return self._endpoint

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


class ServerRecovery:
    """A server that is started on each state."""

    def __init__(self, spec: str, policy: str, limit_bytes: int) -> None:
        self._home = _home()
        who = cluster.identity() if spec.startswith("postgres") else None
        self._workspace = Workspace(
            self._home / "data", limit_bytes=limit_bytes, owner=(who.uid, who.gid) if who else None
        )
        self._engine = self._created(spec, policy)

    def _created(self, spec: str, policy: str) -> LocalServer:
        engine = create(spec, policy, options=self._options())
        assert isinstance(engine, LocalServer)
        return engine

    def _options(self) -> Options:
        return Options(data=self._workspace.folder, root=self._home, start_timeout_s=START_TIMEOUT_S)

    def recover(self, image: Image) -> Endpoint:
        self._engine.kill()
        self._workspace.become(image)
        return self._engine.start()

    def close(self) -> None:
        self._engine.close()
        shutil.rmtree(self._home, ignore_errors=True)


class RedisRecovery(ServerRecovery):
    """Reloads while it can. A server that has loaded another state's files is as good as a new one for this:
    LOADAOF empties it and reads the manifest and all files from the disk."""

    def __init__(self, spec: str, policy: str, limit_bytes: int) -> None:
        self._reloads = policies(spec)[policy].settings.get("appendonly") == "yes"
        super().__init__(spec, policy, limit_bytes)
        assert isinstance(self._engine, RedisEngine)
        self._redis = self._engine

    def _created(self, spec: str, policy: str) -> LocalServer:
        if not self._reloads:
            return super()._created(spec, policy)
        config = self._home / "reloading.conf"
        lines = configuration_lines(policies(spec)[policy])
        if not spec.startswith("redis@6"):
            lines.append("enable-debug-command local")  # Redis 6 has DEBUG without asking
        config.write_text("\n".join(lines) + "\n")
        engine = create(spec, "custom", options=self._options(), config=config)
        assert isinstance(engine, LocalServer)
        return engine

    def recover(self, image: Image) -> Endpoint:
        manifest = any(path.endswith(".manifest") for path in image.entries)
        if self._reloads and manifest and self._engine.alive():
            if self._reload(image):
                return self._engine.endpoint
            if refusal := next(
                (line for line in self._engine.logs(3).splitlines() if _REFUSAL in line), None
            ):
                raise EngineError(
                    f"{self._engine.product} ended on its own data: {refusal.partition('# ')[2]}"
                )
        return super().recover(image)

    def _reload(self, image: Image) -> bool:
        self._workspace.become(image)
        with contextlib.suppress(OSError, RespError):
            with Connection(self._redis.address, timeout_s=START_TIMEOUT_S) as connection:
                return connection.ask("DEBUG", "LOADAOF") == "OK"
        return False


_RECOVERIES: Mapping[str, Callable[[str, str, int], Recovery]] = {
    "sqlite": FileRecovery,
    "chroma": FileRecovery,
    "redis": RedisRecovery,
    "valkey": RedisRecovery,
}

__all__ = [
    "EngineError",
    "FileRecovery",
    "Recovery",
    "RedisRecovery",
    "ServerRecovery",
    "never_read",
    "recovery",
]
