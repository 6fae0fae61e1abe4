"""etcd, alone: where Patroni keeps who is the primary. It is no engine of its own that a store could run on."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.protocols import Policy
from recollect.verify.host import ports
from recollect.verify.host.ports import Reservation
from recollect.verify.host.processes import Launch
from recollect.verify.providers.build import Build

_TIMEOUT_S = 2.0


class EtcdServer(LocalServer):
    name = "etcd"
    policies: ClassVar[Mapping[str, Policy]] = {"default": Policy("default", {}, {})}
    default_policy = "default"

    def __init__(self, program: Path, options: EngineOptions) -> None:
        super().__init__(Build("etcd", "etcd", "?", "wheel", str(program)), options)
        self._peers = Reservation()

    def _prepare(self) -> None:
        self._data.mkdir(0o700, parents=True, exist_ok=True)

    def _launch(self, env: dict[str, str]) -> Launch:
        client, peers = (f"http://{ports.HOST}:{port}" for port in (self.port, self._peers.port))
        words = {
            "data-dir": str(self._data),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "logger": "zap",
            "log-level": "warn",
        }
        flags = [f"--{name}={value}" for name, value in words.items()]
        # No fault is about its disk, and on a busy one a slow fsync would cost a primary its lock.
        return Launch([self.build.location, *flags, "--unsafe-no-fsync"], self.log, env, self.folder)

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection(ports.HOST, self.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _endpoint_now(self) -> Endpoint:
        return Endpoint(
            url=f"http://{ports.HOST}:{self.port}",
            engine=self.name,
            product=self.product,
            version=self.version,
            policy=self.policy,
            provider=self.provider,
            host=ports.HOST,
            port=self.port,
        )

    def settings(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        super().close()
        self._peers.close()
