"""SQLite, in a worker process that can be killed.

A store under test opens the file in its own process, so killing "the engine" there means killing that process.
The worker is how the kit itself uses the file: it creates it with the policy's journal mode, and says what is in
it.

`synchronous` belongs to a connection and cannot be read from the file: the policy's settings are in the
endpoint, for a store to set. The journal mode WAL stays in the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.verify.engines import embedded
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.protocols import Policy
from recollect.verify.host import folder
from recollect.verify.host.errors import EngineError
from recollect.verify.host.processes import Launch
from recollect.verify.providers.build import Build

_SYNCHRONOUS = {"off": "0", "normal": "1", "full": "2", "extra": "3"}
"""PRAGMA synchronous answers with a number."""


def _policy(name: str, journal_mode: str, synchronous: str) -> Policy:
    settings = {"journal_mode": journal_mode, "synchronous": synchronous}
    return Policy(name, settings, {**settings, "synchronous": _SYNCHRONOUS[synchronous]})


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        _policy("wal-full", "wal", "full"),
        _policy("wal-normal", "wal", "normal"),
        _policy("delete-full", "delete", "full"),
        _policy("delete-extra", "delete", "extra"),
    )
}


class SqliteEngine(LocalServer):
    name = "sqlite"
    policies = POLICIES
    default_policy = "wal-full"
    listens = False

    def __init__(self, build: Build, options: EngineOptions) -> None:
        if options.config is not None:
            raise EngineError(
                f"SQLite has no configuration file, so {options.config} cannot be used; choose a policy"
            )
        super().__init__(build, options)
        self.socket = folder.socket_folder(self.folder) / f"{self.folder.name}.sock"

    @property
    def embedded(self) -> bool:
        return True

    @property
    def file(self) -> Path:
        return self._data / "memory.db"

    def _prepare(self) -> None:
        self._data.mkdir(0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)

    def _launch(self, env: dict[str, str]) -> Launch:
        settings = json.dumps(dict(self._policy.settings))
        argv = [
            sys.executable,
            "-I",
            "-S",
            str(embedded.WORKER),
            "sqlite",
            str(self.socket),
            str(self.file),
            settings,
        ]
        return Launch(argv, self.log, env, self._data)

    def _ready(self) -> bool:
        return self.socket.exists() and embedded.answers(self.socket, {"sql": "SELECT 1"})

    def _endpoint_now(self) -> Endpoint:
        return Endpoint(
            url=f"sqlite:///{self.file}",
            engine=self.name,
            product=self.product,
            version=self.ask("SELECT sqlite_version()")[0][0],
            policy=self.policy,
            provider=self.provider,
            path=self.file,
            settings=self._policy.settings,
        )

    def settings(self) -> Mapping[str, str]:
        return {name: str(self.ask(f"PRAGMA {name}")[0][0]) for name in ("journal_mode", "synchronous")}

    def ask(self, sql: str, *parameters: object) -> list[list[Any]]:
        """One statement, committed when it returns: what the file really has, whatever a store says."""
        rows: list[list[Any]] = embedded.ask(self.socket, {"sql": sql, "parameters": parameters})
        return rows
