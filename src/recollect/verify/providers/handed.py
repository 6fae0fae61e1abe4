"""A container that the user's own fixture made, with testcontainers or docker-py: killed, paused and started again, and
never removed. Its name, its volume and its end are its owner's.

Docker gives a container whose port was not fixed another one at every start, so the address is read again each time.
"""

from __future__ import annotations

from typing import Any

from recollect.verify.host.errors import EngineError, NotOurs
from recollect.verify.providers import docker
from recollect.verify.providers.live import LiveContainer

NAME = "testcontainer"


class HandedContainer(LiveContainer):
    """`given` is a started `DockerContainer` of testcontainers (`RedisContainer("redis:7")`), or docker-py's own."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._container = given.get_wrapped_container() if hasattr(given, "get_wrapped_container") else given
        if self._container is None or not hasattr(self._container, "attrs"):
            raise EngineError(
                f"{type(given).__name__} is no started container: hand it over inside its `with` block, or after"
                " start()"
            )
        config = self._attributes()["Config"]
        self.image: str = config["Image"]
        self.env = dict(entry.split("=", 1) for entry in config.get("Env") or () if "=" in entry)
        self.command = [str(word) for word in config.get("Cmd") or ()]

    def address(self, port: int) -> tuple[str, int]:
        attributes = self._attributes()
        if hasattr(self._given, "get_exposed_port"):
            return self._given.get_container_host_ip(), int(self._given.get_exposed_port(port))
        published = attributes["NetworkSettings"]["Ports"].get(f"{port}/tcp")
        if not published:
            raise EngineError(f"the container of {self.image} publishes no port {port}")
        return docker.host_of(published[0]["HostIp"]), int(published[0]["HostPort"])

    def wipe(self) -> None:
        raise NotOurs(
            "the container is yours, and so is its volume: leave its `with` block and hand over a new one"
        )

    def remove(self) -> None:
        """Only wakes it up: its owner removes it."""
        if self._attributes()["State"]["Paused"]:
            self.resume()
