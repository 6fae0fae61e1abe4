"""Several servers on this machine that are one engine: a cluster, or a primary with its replicas and sentinels.

An engine says which servers it has and when they are ready together; this class starts, stops and kills them all. Each
server is an engine of its own, with its folder, its log and its process, so that a fault can break one of them.

    engine folder/
      <server>-1/ …    one folder for each
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.life import BuiltEngine
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.policy_choice import choose
from recollect.verify.engines.protocols import Policy
from recollect.verify.host import folder, ports
from recollect.verify.host.errors import EngineError, StartFailed
from recollect.verify.providers.build import Build
from recollect.verify.wire.resp import RespError

Server = TypeVar("Server", bound=LocalServer)


class ServerGroup(BuiltEngine, Generic[Server]):
    """The servers, in the order in which they are started. Subclasses fill in the hooks at the end of the class."""

    name: ClassVar[str]
    policies: ClassVar[Mapping[str, Policy]]
    default_policy: ClassVar[str]
    poll_s: ClassVar[float] = 0.005
    """How often it is asked whether it is ready."""
    first_before_others: ClassVar[bool] = False
    """Whether the others are started when the first one answers: who asks for it in vain tries again a second later."""

    def __init__(self, build: Build, options: EngineOptions) -> None:
        if options.data is not None or options.port is not None:
            raise EngineError(
                f"{self.name} has several servers, each with a folder and a port of its own: leave data and port out"
            )
        self.build = build
        self._policy = choose(self.name, self.policies, self.default_policy, options)
        self.folder = folder.subfolder(self.name, options.root)
        self.options = replace(options, root=self.folder)
        self.servers: list[Server] = []
        try:
            self._make_servers()
        except BaseException:
            self.close()
            raise

    # What it is -----------------------------------------------------------------------------------

    @property
    def data(self) -> Path:
        return self.folder

    # Life cycle -----------------------------------------------------------------------------------

    def _bring_up(self, env: Mapping[str, str]) -> None:
        self.kill()
        try:
            self._prepare()
            for server in self.servers:
                server.begin(env)
                if self.first_before_others and server is self.servers[0]:
                    server.await_start()
        except BaseException:
            self.kill()
            raise

    def start_one_by_one(self, order: Sequence[Server]) -> Endpoint:
        """After all were killed: each is up before the next one is started, and at the end they are ready together."""
        for server in order:
            server.start()
        self.await_ready(self.options.start_timeout_s)
        self._endpoint = self._endpoint_now()
        return self._endpoint

    def _endpoint_when_ready(self) -> Endpoint:
        for server in self.servers:
            server.await_start()
        self.await_ready(self.options.start_timeout_s)
        return self._endpoint_now()

    def await_ready(self, timeout_s: float) -> None:
        """Waits until the servers that run work together; `StartFailed` says what is missing."""
        give_up = time.monotonic() + timeout_s
        while (missing := self._missing_now()) is not None:
            if time.monotonic() > give_up:
                raise StartFailed(
                    f"{self.name} was not ready within {timeout_s:g} s: {missing}", self.logs(12)
                )
            time.sleep(self.poll_s)

    def is_ready(self) -> bool:
        return self._missing_now() is None

    def _missing_now(self) -> str | None:
        try:
            return self._missing()
        except (OSError, RespError) as error:
            return f"a server does not answer ({error})"

    def alive(self) -> bool:
        """Whether any of its servers is."""
        return any(server.alive() for server in self.servers)

    def stop(self) -> None:
        for server in reversed(self.servers):  # replicas first: a primary waits for those it has
            server.stop()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def pause(self) -> None:
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        for server in self.servers:
            server.resume()

    def _wipe_data(self) -> None:
        for server in self.servers:
            server.wipe()

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(folder.discard, self.folder)
            for server in self.servers:
                stack.callback(server.close)

    def settings(self) -> Mapping[str, str]:
        """Of its first running server; all are started with the same."""
        return next(server for server in self.servers if server.alive()).settings()

    def logs(self, lines_max: int = 40) -> str:
        """The last lines of each server."""
        each = max(2, lines_max // max(1, len(self.servers)))
        return "\n".join(
            f"{server.folder.name}: {line}"
            for server in self.servers
            for line in server.logs(each).splitlines()
        )

    def others(self, *left_out: Server) -> Sequence[Server]:
        """The servers that answer, except these."""
        return [
            server
            for server in self.servers
            if server not in left_out and server.alive() and not server.is_paused
        ]

    def _reached_at(self, first: Endpoint, url: str, port: int, nodes: tuple[str, ...]) -> Endpoint:
        """The endpoint of the whole group; `first` is one of its servers'."""
        return Endpoint(
            url=url,
            engine=self.name,
            product=first.product,
            version=first.version,
            policy=self.policy,
            provider=self.provider,
            host=ports.HOST,
            port=port,
            user=first.user,
            password=first.password,
            nodes=nodes,
        )

    # Hooks ----------------------------------------------------------------------------------------

    @abstractmethod
    def _make_servers(self) -> None:
        """Fill `servers`, none of them started."""

    def _prepare(self) -> None:
        """Called before each start of all servers."""

    @abstractmethod
    def _missing(self) -> str | None:
        """What the group still lacks, in words; None when it is ready."""

    @abstractmethod
    def _endpoint_now(self) -> Endpoint: ...
