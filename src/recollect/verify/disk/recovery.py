"""Putting an engine on one crash state after another, as fast as the engine allows.

Starting a server for each of thousands of states would take most of the time, so each engine is recovered in the
cheapest way that still runs its own, real recovery:

sqlite, chroma (embedded)  the store opens the files itself; there is no server
redis from 7 on, valkey    a server that was stopped before it reads its data is copied (`prestart`), and the copy
                           does the rest of a start; then it is killed
postgres, older redis      a start and a kill, in a folder of which only the difference is rewritten

`recover` raises EngineError when the engine refuses to start: an anomaly, not a failure of ours.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from recollect.verify import providers
from recollect.verify.disk.image import Image
from recollect.verify.disk.prestart.redis import PrestartedRedis, can_be_prestarted
from recollect.verify.disk.workspace import Workspace
from recollect.verify.engines import Endpoint, EngineError, EngineOptions, create, policies
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.local import LocalServer
from recollect.verify.host import folder

_ROOM_BYTES = 2 << 30
START_TIMEOUT_S = 20.0


def never_read(spec: str) -> Callable[[str], bool]:
    """Paths that recovery does not read: states that differ in nothing else count as one.

    SQLite rebuilds its shared-memory file. PostgreSQL deletes its cached catalogues (`pg_internal.init`) before it
    replays anything, and writes `postmaster.opts` for people.
    """
    if spec.startswith("sqlite"):
        return lambda path: path.endswith("-shm")
    if spec.startswith("postgres"):
        return lambda path: "pg_internal.init" in path or path == "postmaster.opts"
    return lambda path: False


class Recovery(Protocol):
    """One worker's engine."""

    embedded: bool
    """It has no process of its own: whoever opens the files recovers them."""

    @property
    def folder(self) -> Path:
        """Its files."""

    def lay_out(self, image: Image) -> None:
        """Makes this image the engine's files; the engine is down afterwards."""

    def start(self, env: Mapping[str, str] | None = None) -> Endpoint:
        """Lets it recover on its files. Raises EngineError if it refuses. `env` has to be the same each time."""

    def recover(self, image: Image) -> Endpoint:
        """Both."""

    def stop(self) -> None:
        """Kills it."""

    def close(self) -> None: ...


def recovery(spec: str, policy: str, home: Path, *, limit_bytes: int = 1 << 30) -> Recovery:
    """The way to recover this engine under this policy. It makes a folder of its own in `home`."""
    name = spec.partition("@")[0]
    own = Path(tempfile.mkdtemp(dir=home))
    own.chmod(0o711)
    return _RECOVERIES.get(name, ServerRecovery)(spec, policy, own, limit_bytes)


def home() -> Path:
    """Where crash states are laid out, removed when this process ends. Made once for all workers: each of them would
    need a warden for it, and a worker that only opens files needs none.

    In memory if there is plenty: what is put there is thrown away a moment later.
    """
    return folder.in_memory(_ROOM_BYTES)


class FileRecovery:
    """An embedded engine: the image is laid out, and the store that opens it recovers it."""

    embedded = True

    def __init__(self, spec: str, policy: str, folder: Path, limit_bytes: int) -> None:
        self._home = folder
        self._workspace = Workspace(self._home / "data", limit_bytes=limit_bytes)
        settings = policies(spec)[policy].settings
        data = self._workspace.folder
        name = spec.partition("@")[0]
        path = data / "memory.db" if name == "sqlite" else data
        self._endpoint = Endpoint(
            f"{name}:///{path}", name, name, "", policy, "", path=path, settings=settings
        )

    @property
    def folder(self) -> Path:
        return self._workspace.folder

    def lay_out(self, image: Image) -> None:
        self._workspace.become(image)

    def start(self, env: Mapping[str, str] | None = None) -> Endpoint:
        return self._endpoint

    def recover(self, image: Image) -> Endpoint:
        self.lay_out(image)
        return self.start()

    def stop(self) -> None:
        """Nothing of it runs."""

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


class ServerRecovery:
    """A server that is started on each state."""

    embedded = False

    def __init__(self, spec: str, policy: str, folder: Path, limit_bytes: int) -> None:
        self._home = folder
        who = cluster.identity() if spec.startswith("postgres") else None
        self._workspace = Workspace(
            self._home / "data", limit_bytes=limit_bytes, owner=(who.uid, who.gid) if who else None
        )
        self._engine = self._created(spec, policy)

    def _created(self, spec: str, policy: str) -> LocalServer:
        engine = create(spec, policy, options=self._options())
        assert isinstance(engine, LocalServer)
        return engine

    def _options(self) -> EngineOptions:
        return EngineOptions(data=self._workspace.folder, root=self._home, start_timeout_s=START_TIMEOUT_S)

    @property
    def folder(self) -> Path:
        return self._workspace.folder

    def lay_out(self, image: Image) -> None:
        self.stop()
        self._workspace.become(image)

    def start(self, env: Mapping[str, str] | None = None) -> Endpoint:
        return self._engine.start(env)

    def recover(self, image: Image) -> Endpoint:
        self.lay_out(image)
        return self.start()

    def stop(self) -> None:
        self._engine.kill()

    def close(self) -> None:
        self._engine.close()
        shutil.rmtree(self._home, ignore_errors=True)


class RedisRecovery(ServerRecovery):
    """Copies of one server that has not read its data yet, if this server can be prestarted."""

    def _created(self, spec: str, policy: str) -> LocalServer:
        build = providers.find(spec)
        if can_be_prestarted(build):
            return PrestartedRedis(build, replace(self._options(), policy=policy))
        return super()._created(spec, policy)


_RECOVERIES: Mapping[str, Callable[[str, str, Path, int], Recovery]] = {
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
    "home",
    "never_read",
    "recovery",
]
