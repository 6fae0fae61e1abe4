"""The life of an engine that a run starts, wherever it runs: the order of the steps, and what is refused when.

A process on this machine (`local`) and a container (`carried`) fill in how each step is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.protocols import Policy
from recollect.verify.host.errors import EngineError
from recollect.verify.providers.build import Build


class EngineLife(ABC):
    _endpoint: Endpoint | None = None

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    def embedded(self) -> bool:
        return False

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            raise EngineError(f"{self.name} has not been started yet; call start() first")
        return self._endpoint

    def start(self, env: Mapping[str, str] | None = None) -> Endpoint:
        self.begin(env)
        return self.await_start()

    def begin(self, env: Mapping[str, str] | None = None) -> None:
        """The first half of `start`, so that several can start side by side."""
        if self.alive():
            raise EngineError(
                f"{self.name} is already running at {self.endpoint.shown}; stop() or kill() it first"
            )
        self._bring_up(env or {})

    def await_start(self) -> Endpoint:
        """The second half: waits until it answers."""
        try:
            self._endpoint = self._endpoint_when_ready()
        except BaseException:
            self.kill()
            raise
        return self._endpoint

    def restart(self, env: Mapping[str, str] | None = None) -> Endpoint:
        self.stop()
        return self.start(env)

    def wipe(self) -> None:
        if self.alive():
            raise EngineError(f"{self.name} is running; stop() or kill() it before its data is wiped")
        self._wipe_data()

    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def _bring_up(self, env: Mapping[str, str]) -> None: ...

    @abstractmethod
    def _endpoint_when_ready(self) -> Endpoint:
        """Wait until it answers; `StartFailed` if it ends, or does not answer in time."""

    @abstractmethod
    def _wipe_data(self) -> None: ...


class BuiltEngine(EngineLife):
    """An engine from binaries on this machine, under a policy."""

    build: Build
    _policy: Policy

    @property
    def provider(self) -> str:
        return self.build.provider

    @property
    def product(self) -> str:
        return self.build.product

    @property
    def version(self) -> str:
        return self.build.version

    @property
    def policy(self) -> str:
        return self._policy.name
