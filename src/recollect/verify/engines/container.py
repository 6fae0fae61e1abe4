"""An engine in a container of the docker provider: the same policies as natively, on Docker's kinds of
storage."""

from __future__ import annotations

from collections.abc import Mapping

from recollect.verify import providers
from recollect.verify.engines.carried import CarriedEngine
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.mounted import inside, shared_files
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.password import new_password
from recollect.verify.engines.policy_choice import choose, named
from recollect.verify.engines.recipe import Login, Recipe
from recollect.verify.host.errors import EngineError
from recollect.verify.providers import docker
from recollect.verify.providers.build import Build
from recollect.verify.providers.container import Container, ContainerSpec


class ContainerEngine(CarriedEngine):
    """Can also switch to another policy and, on a named volume, to another version of the same engine."""

    def __init__(self, recipe: Recipe, build: Build, options: EngineOptions, storage: str) -> None:
        self._policy = choose(recipe.engine, recipe.policies, recipe.default_policy, options)
        docker.ensure_local(build.location)
        self.build = build
        self._container = Container(storage)
        self._password = new_password()
        super().__init__(recipe, self._container, options, build.location)

    @property
    def provider(self) -> str:
        return docker.NAME

    @property
    def policy(self) -> str:
        return self._policy.name

    @property
    def storage(self) -> str:
        return self._container.storage

    def _bring_up(self, env: Mapping[str, str]) -> None:
        self._container.start(
            ContainerSpec(
                image=self.build.location,
                command=tuple(self._recipe.command(self.build.product, self._policy)),
                port=self._recipe.port,
                data=self._recipe.data,
                env={**self._recipe.env(self._password), **self.options.env, **inside(env, self._folder)},
                files=self._files(),
                shared=shared_files(env),
            )
        )

    def _files(self) -> Mapping[str, str]:
        return self._recipe.files(self._policy, self._password)

    def _login_now(self) -> Login:
        host, port = self._container.address()
        return self._recipe.own(self._policy, self._password, Login(host, port))

    def reconfigure(self, policy: str) -> Endpoint:
        """Replaces this container with a new one, as `docker compose up` does after a change: an anonymous
        volume is lost."""
        chosen = named(self.name, self._recipe.policies, policy)
        self.stop()
        self._policy = chosen
        return self.start()

    def upgrade(self, version: str) -> Endpoint:
        """Another image on the same volume. PostgreSQL refuses another major version with `StartFailed`."""
        return self.swap(version)

    def downgrade(self, version: str) -> Endpoint:
        return self.swap(version)

    def swap(self, version: str) -> Endpoint:
        name = "valkey" if self.build.product == "Valkey" else self.name
        build = providers.find(version if "@" in version else f"{name}@{version}", docker.NAME)
        self.stop()
        former, self.build = self.build, build
        try:
            return self.start()
        except EngineError:
            self.build = former
            raise
