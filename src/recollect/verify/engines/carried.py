"""What engines in containers share, whether the docker provider made the container, or compose from a user's
file.

They are slower than native ones by an order of magnitude, but only they can show what a deleted, anonymous or
tmpfs volume costs, and run the very image that production runs.

Their data is in a volume. If the daemon runs on this machine and we may look into its volumes, `data` is that folder,
and whatever is done to the files of a native engine can be done to these.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.life import EngineLife
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.protocols import Replica
from recollect.verify.engines.recipe import Following, Login, Recipe
from recollect.verify.host.errors import EngineError, StartFailed
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers import docker, neighbour
from recollect.verify.providers.neighbour import NeighbourContainer


class Carrier(Protocol):
    """What an engine needs from its container."""

    def running(self) -> bool: ...

    def exit_status(self) -> int: ...

    def stop(self, timeout_s: float) -> None: ...

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def wipe(self) -> None: ...

    def remove(self) -> None: ...

    def logs(self, lines_max: int) -> str: ...

    def mounts(self) -> list[dict[str, Any]]: ...

    def container(self) -> Any:
        """As the daemon's client has it."""


class CarriedEngine(EngineLife):
    """An engine in a container. Subclasses say how it is brought up and where it then answers."""

    def __init__(self, recipe: Recipe, carrier: Carrier, options: EngineOptions, title: str) -> None:
        self.options = options
        self.title = title
        """The image or the service, for error messages."""
        self._recipe = recipe
        self._carrier = carrier
        self._login: Login | None = None
        self._folder: str | None = None
        """Where its data is inside the container, once it has told."""
        self._replicas: list[Replica] = []

    @property
    def name(self) -> str:
        return self._recipe.engine

    @property
    @abstractmethod
    def provider(self) -> str: ...

    @property
    @abstractmethod
    def policy(self) -> str: ...

    @property
    def product(self) -> str:
        return self.endpoint.product

    @property
    def version(self) -> str:
        return self.endpoint.version

    @property
    def data(self) -> Path | None:
        """Its folder as this machine sees it, once it has been started; None if it is in memory or out of reach."""
        return None if self._folder is None else docker.seen_from_here(self._folder, self._carrier.mounts())

    def _endpoint_when_ready(self) -> Endpoint:
        self._login = self._wait_until_ready()
        self._folder = self._recipe.folder(self._login)
        return self._endpoint_at(self._login)

    def _wait_until_ready(self) -> Login:
        def ready() -> bool:
            if not self._carrier.running():
                raise StartFailed(
                    f"{self.title} ended with status {self._carrier.exit_status()} before it was ready:"
                    " its log ends",
                    self.logs(12),
                )
            return self._recipe.is_ready(login)

        try:
            login = self._login_now()
        except Exception as error:  # whatever the daemon's client raises for a container that is gone
            if self._carrier.running():
                raise
            raise StartFailed(f"{self.title} ended at once: its log ends", self.logs(12)) from error
        try:
            wait_until(ready, self.options.start_timeout_s, f"{self.title} was not ready")
        except StartFailed:
            raise
        except EngineError as error:
            raise StartFailed(f"{error}: its log ends", self.logs(12)) from error
        return login

    def _endpoint_at(self, login: Login) -> Endpoint:
        product, version = self._recipe.identify(login)
        return Endpoint(
            url=self._recipe.url(login),
            engine=self.name,
            product=product,
            version=version or docker.tagged_version(self._carrier.container().attrs["Config"]["Image"]),
            policy=self.policy,
            provider=self.provider,
            host=login.host,
            port=login.port,
            user=login.user,
            password=login.password,
            path=self.data if self._recipe.rows_beside else None,
            replicas=tuple(replica.endpoint.url for replica in self._replicas),
        )

    def stop(self) -> None:
        self._carrier.stop(self.options.stop_timeout_s)

    def kill(self) -> None:
        self._carrier.kill()

    def _wipe_data(self) -> None:
        self._carrier.wipe()

    def close(self) -> None:
        for replica in self._replicas:
            replica.close()
        self._carrier.remove()

    def alive(self) -> bool:
        return self._carrier.running()

    def pause(self) -> None:
        self._carrier.pause()

    def resume(self) -> None:
        self._carrier.resume()

    def logs(self, lines_max: int = 40) -> str:
        return self._carrier.logs(lines_max)

    @property
    def login(self) -> Login:
        if self._login is None:
            raise EngineError(f"{self.name} has not been started yet; call start() first")
        return self._login

    def settings(self) -> Mapping[str, str]:
        return self._recipe.settings(self.login)

    def written(self) -> int:
        if self._login is None or self._recipe.written is None:
            raise EngineError(f"{self.name} cannot be asked how much was written to it")
        return self._recipe.written(self._login)

    def replica(self) -> Replica:
        """In a second container like this one, beside it in its network."""
        begin, follow = self._recipe.begin_replica, self._recipe.follow
        if begin is None or follow is None:
            raise EngineError(f"{self.name} has no replicas")
        first = self._carrier.container()

        def place() -> Login:
            host, port = neighbour.place_of(first, self._recipe.port)
            return replace(self.login, host=host, port=port)

        before = begin(self.login, place(), lambda argv: neighbour.run_in(first, argv))
        data = self._recipe.folder(self.login)
        beside = NeighbourContainer(first, self._recipe.port, data, self._files(), before)
        server = CarriedReplica(self._recipe, self, beside)
        try:
            server.start()
            made = follow(Following(server, server.login, self.login, place))
        except BaseException:
            server.close()
            raise
        self._replicas.append(made)
        self._endpoint = self._endpoint_at(self.login)
        return made

    def _files(self) -> Mapping[str, str]:
        """Text files that we put into the container."""
        return {}

    @abstractmethod
    def _login_now(self) -> Login: ...


class CarriedReplica(CarriedEngine):
    """The server of a replica; how it follows is up to `Recipe.follow`."""

    def __init__(self, recipe: Recipe, primary: CarriedEngine, container: NeighbourContainer) -> None:
        self._primary = primary
        self._container = container
        super().__init__(recipe, container, primary.options, f"the replica of {primary.title}")

    @property
    def provider(self) -> str:
        return self._primary.provider

    @property
    def policy(self) -> str:
        return self._primary.policy

    def _bring_up(self, env: Mapping[str, str]) -> None:
        self._container.start()

    def _login_now(self) -> Login:
        host, port = self._container.address()
        return replace(self._primary.login, host=host, port=port)
