"""Chroma: its server (`server`), or the library in a worker process (`embedded`). The files are the same.

Rows are in SQLite with a rollback journal, vectors in HNSW files that are never fsynced. The policies only choose
who has the files open, not how durable they are: Chroma has no setting for that. The server has no unix socket,
only a port.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.verify import providers
from recollect.verify.engines import embedded
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.protocols import Policy
from recollect.verify.engines.recipe import Login, Recipe
from recollect.verify.host import folder, ports
from recollect.verify.host.errors import EngineError
from recollect.verify.host.processes import Launch
from recollect.verify.providers.build import Build

_JOURNAL = {"journal_mode": "delete"}
POLICIES: Mapping[str, Policy] = {name: Policy(name, {}, _JOURNAL) for name in ("server", "embedded")}
_SERVER = Path(__file__).with_name("chroma_server.py")
_QUIET = {"ANONYMIZED_TELEMETRY": "False", "CHROMA_DISABLE_TELEMETRY": "1"}


def _get(login: Login, path: str) -> Any:
    """The decoded answer, or None if it does not answer (yet)."""
    connection = http.client.HTTPConnection(login.host, login.port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return json.loads(response.read()) if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class ChromaEngine(LocalServer):
    name = "chroma"
    policies = POLICIES
    default_policy = "server"

    def __init__(self, build: Build, options: EngineOptions) -> None:
        if options.config is not None:
            raise EngineError(f"Chroma takes no configuration file here, so {options.config} cannot be used")
        super().__init__(build, options)
        self.socket = folder.socket_folder(self.folder) / f"{self.folder.name}.sock"

    @property
    def embedded(self) -> bool:
        return self.policy == "embedded"

    def _prepare(self) -> None:
        self._data.mkdir(0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)

    def _launch(self, env: dict[str, str]) -> Launch:
        site = str(Path(self.build.location).parent)
        if self.embedded:
            argv = [sys.executable, str(embedded.WORKER), "chroma", str(self.socket), str(self._data), "{}"]
        else:
            argv = [sys.executable, "-I", "-S", str(_SERVER), site, "run", "--path", str(self._data)]
            argv += ["--host", ports.HOST, "--port", str(self.port)]
        return Launch(argv, self.log, {**_QUIET, "PYTHONPATH": site, **env}, self._data)

    def _ready(self) -> bool:
        if self.embedded:
            return self.socket.exists() and embedded.answers(self.socket, {"call": "ping"})
        return _get(Login(ports.HOST, self.port), "/api/v2/heartbeat") is not None

    def _endpoint_now(self) -> Endpoint:
        embedded_one = Endpoint(
            url=f"chroma://{self._data}",
            engine=self.name,
            product=self.product,
            version=self.version,
            policy=self.policy,
            provider=self.provider,
            path=self._data,
        )
        if self.embedded:
            return embedded_one
        return replace(embedded_one, url=f"http://{ports.HOST}:{self.port}", host=ports.HOST, port=self.port)

    def settings(self) -> Mapping[str, str]:
        """Read from its SQLite file, without writing: Chroma has no other durability settings."""
        if self.embedded:
            self.ask("count", "recollect")  # the worker opens its folder at the first call
        connection = sqlite3.connect(f"file:{self._data / 'chroma.sqlite3'}?mode=ro", uri=True)
        try:
            return {"journal_mode": str(connection.execute("PRAGMA journal_mode").fetchone()[0])}
        finally:
            connection.close()

    def upgrade(self, version: str) -> Endpoint:
        """The same folder under another release, which migrates it when it starts."""
        return self.swap(version)

    def downgrade(self, version: str) -> Endpoint:
        return self.swap(version)

    def swap(self, version: str) -> Endpoint:
        if self.embedded:
            raise EngineError(
                "the policy 'embedded' has no server: the release is that of the target's own process"
            )
        return self._start_under(providers.find(f"chroma@{version}", self.provider))

    def ask(self, call: str, collection: str, **arguments: Any) -> Any:
        """One call to the embedded engine; for a server use Chroma's own client over HTTP."""
        if not self.embedded:
            raise EngineError(
                "only the policy 'embedded' has a worker to ask; use Chroma's client on the server"
            )
        return embedded.ask(self.socket, {"call": call, "collection": collection, "arguments": arguments})


# In a container -----------------------------------------------------------------------------------

_FOLDER = "/data"
"""Of the official image, since 1.0."""

RECIPE = Recipe(
    engine="chroma",
    port=8000,
    data=_FOLDER,
    # The library in a container would be the target's own business; the server has no setting to read back.
    policies={"server": Policy("server", {}, {})},
    default_policy="server",
    command=lambda product, policy: ["run", "--path", _FOLDER, "--host", "0.0.0.0", "--port", "8000"],
    files=lambda policy, password: {},
    env=lambda password: _QUIET,
    own=lambda policy, password, login: login,
    is_ready=lambda login: _get(login, "/api/v2/heartbeat") is not None,
    identify=lambda login: ("Chroma", ""),  # it tells the version of its interface only
    settings=lambda login: {},
    folder=lambda login: _FOLDER,
    written=None,
    change=lambda policy: [],
    url=lambda login: f"http://{login.host}:{login.port}",
    credentials=lambda env, command, login: login,
    rows_beside=True,
)
