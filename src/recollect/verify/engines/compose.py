"""An engine that is a service of the user's compose file: configured as the file says, so its policy is
`custom`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.verify.engines.carried import CarriedEngine
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.recipe import Login, Recipe
from recollect.verify.host.errors import EngineError
from recollect.verify.providers import compose
from recollect.verify.providers.compose import ComposeService


class ComposeEngine(CarriedEngine):
    """The file decides its version and policy."""

    def __init__(self, recipe: Recipe, named: str, options: EngineOptions) -> None:
        file, _, service = named.partition("#")
        if not file or not service:
            raise EngineError(f"compose:{named} names no service; write --provider compose:FILE#SERVICE")
        if options.config is not None or options.policy not in (None, "custom"):
            raise EngineError(
                "a compose service is configured by its file: its policy is 'custom'; give no other"
            )
        self._service = ComposeService(Path(file), service)
        super().__init__(recipe, self._service, options, f"service {service!r}")

    @property
    def provider(self) -> str:
        return compose.NAME

    @property
    def policy(self) -> str:
        return "custom"

    def _bring_up(self, env: Mapping[str, str]) -> None:
        if env:
            raise EngineError(
                "the environment of a compose service is in its file; it cannot be added to here"
            )
        self._service.start()

    def _login_now(self) -> Login:
        host, port = self._service.address(self._recipe.port)
        definition = self._service.definition
        return self._recipe.credentials(
            _environment(definition.get("environment")), _words(definition.get("command")), Login(host, port)
        )


def _environment(value: Any) -> dict[str, str]:
    """Compose allows a mapping or a list of NAME=VALUE."""
    if isinstance(value, dict):
        return {str(key): str(item) for key, item in value.items() if item is not None}
    return dict(entry.split("=", 1) for entry in value or [] if "=" in entry)


def _words(command: Any) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else [str(word) for word in command or []]
