"""An engine in a container that the user's own fixture made: configured as they made it, so its policy is `custom`."""

from __future__ import annotations

from collections.abc import Mapping

from recollect.verify.engines.carried import CarriedEngine
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.recipe import Login, Recipe
from recollect.verify.host.errors import EngineError
from recollect.verify.providers import handed
from recollect.verify.providers.handed import HandedContainer


class HandedEngine(CarriedEngine):
    """`close()` leaves the container to its owner."""

    def __init__(self, recipe: Recipe, container: HandedContainer) -> None:
        self._container = container
        super().__init__(recipe, container, EngineOptions(), container.image)
        if container.running():
            self.await_start()

    @property
    def provider(self) -> str:
        return handed.NAME

    @property
    def policy(self) -> str:
        return "custom"

    def _bring_up(self, env: Mapping[str, str]) -> None:
        if env:
            raise EngineError(
                "the environment of your container is fixed when you make it: it cannot be added to"
            )
        self._container.start()

    def _login_now(self) -> Login:
        host, port = self._container.address(self._recipe.port)
        return self._recipe.credentials(self._container.env, self._container.command, Login(host, port))
