"""An engine that is a service of the user's compose file: configured as the file says, so its policy is
`custom`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recollect.verify import providers
from recollect.verify.engines.carried import CarriedEngine
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.mounted import inside, shared_files
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.policy_choice import named
from recollect.verify.engines.protocols import Policy
from recollect.verify.engines.recipe import Login, Recipe
from recollect.verify.host.errors import EngineError, NotInstalled
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers import compose, docker
from recollect.verify.providers.compose import ComposeService


class ComposeEngine(CarriedEngine):
    """The file decides its version and policy, until a fault changes them: another image on the same volumes, or words
    added to the command."""

    def __init__(
        self, recipe: Recipe, place: str, options: EngineOptions, recipes: Mapping[str, Recipe]
    ) -> None:
        """`recipes` are of all engines: a service beside this one may be any of them."""
        file, service, beside = compose.place_of(place)
        if options.config is not None or options.policy not in (None, "custom"):
            raise EngineError(
                "a compose service is configured by its file: its policy is 'custom'; give no other"
            )
        self._service = ComposeService(file, service, recipe.data, beside)
        self._recipes = recipes
        self._image: str | None = None
        self._changed_to: Policy | None = None
        super().__init__(recipe, self._service, options, f"service {service!r}")

    @property
    def provider(self) -> str:
        return compose.NAME

    @property
    def policy(self) -> str:
        return "custom" if self._changed_to is None else self._changed_to.name

    def _bring_up(self, env: Mapping[str, str]) -> None:
        self._service.add(
            image=self._image,
            command=self._command(),
            environment=inside(env, self._folder),
            volumes=[f"{path}:{path}:{mode}" for path, mode in shared_files(env).items()],
        )
        self._service.start()

    def _command(self) -> list[str] | None:
        """The file's command or the image's own, with the settings of the changed policy at its end."""
        if self._changed_to is None:
            return None
        given = _words(self._service.of_file.get("command")) or docker.command_of(self._service.image)
        return [*given, *self._recipe.change(self._changed_to)]

    def reconfigure(self, policy: str) -> Endpoint:
        """What an operator does: adds the setting to the command in the file, and brings the service up again."""
        chosen = named(self.name, self._recipe.policies, policy)
        self.stop()
        self._changed_to = chosen
        return self.start()

    def upgrade(self, version: str) -> Endpoint:
        return self.swap(version)

    def downgrade(self, version: str) -> Endpoint:
        return self.swap(version)

    def swap(self, version: str) -> Endpoint:
        """Another `image:` in the file, on the same volumes."""
        build = providers.find(
            version if "@" in version else f"{docker.spec_name(self._service.image)}@{version}", docker.NAME
        )
        self.stop()
        former, self._image = self._image, build.location
        try:
            return self.start()
        except EngineError:
            self._image = former
            raise

    def _login_now(self) -> Login:
        return self._login_of(self._recipe, self._service.service, self._service.definition)

    def _login_of(self, recipe: Recipe, service: str, definition: Mapping[str, Any]) -> Login:
        host, port = self._service.address(recipe.port, service)
        return recipe.credentials(
            _environment(definition.get("environment")), _words(definition.get("command")), Login(host, port)
        )

    def _endpoint_at(self, login: Login) -> Endpoint:
        others = {name: self._address_of(name) for name in self._service.beside}
        return replace(super()._endpoint_at(login), services=others)

    def _address_of(self, service: str) -> str:
        """The address of a service beside this one, once it answers: as its driver takes it if its engine is known,
        else host and port."""
        definition = self._service.resolved["services"][service]
        try:
            recipe = self._recipes[providers.parse(docker.spec_name(definition["image"]))[0]]
        except (KeyError, NotInstalled):
            host, port = self._service.address(None, service)
            return f"{host}:{port}"
        login = self._login_of(recipe, service, definition)
        wait_until(
            lambda: recipe.is_ready(login), self.options.start_timeout_s, f"service {service!r} was not ready"
        )
        return recipe.url(login)


def _environment(value: Any) -> dict[str, str]:
    """Compose allows a mapping or a list of NAME=VALUE."""
    if isinstance(value, dict):
        return {str(key): str(item) for key, item in value.items() if item is not None}
    return dict(entry.split("=", 1) for entry in value or [] if "=" in entry)


def _words(command: Any) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else [str(word) for word in command or []]
