"""One container with one kind of storage: the basis of an engine in a container. It knows nothing about Redis or
PostgreSQL.

| storage     | kill and start | recreated (another image, another command) |
|-------------|----------------|--------------------------------------------|
| `named`     | kept           | kept                                       |
| `anonymous` | kept           | gone: the volume dies with the container   |
| `tmpfs`     | gone           | gone                                       |

If the daemon is on this machine, the port is published on its loopback address only, and is the same at every start: an
address that changes would make every store look as if it did not recover. Elsewhere the port changes at every start and
is read again each time; the host is then what testcontainers finds.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.verify.host import ports
from recollect.verify.host.errors import EngineError, UnknownName
from recollect.verify.providers import docker, docker_sweep

STORAGE_KINDS = ("named", "anonymous", "tmpfs")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class ContainerSpec:
    image: str
    command: Sequence[str]
    port: int
    """The port inside the container."""
    data: str
    """The folder inside the container that the storage is mounted on."""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Text files to put into the container: path → content."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Files of this machine that are mounted at the same place: path → `ro` or `rw`."""


class Container:
    """Created at the first `start()`; `remove()` also removes its storage."""

    def __init__(self, storage: str) -> None:
        if storage not in STORAGE_KINDS:
            raise UnknownName("docker storage", storage, STORAGE_KINDS)
        docker.without_ryuk()
        docker_sweep.register()
        self.storage = storage
        self._labels = docker_sweep.labels()
        self._volume = docker_sweep.name_of(next(_numbers))
        self._port = ports.Reservation() if docker.is_on_this_host() else None
        self._made: Any = None
        self._spec: ContainerSpec | None = None

    def start(self, spec: ContainerSpec) -> None:
        """Start the container of this spec: the existing one, or a new one if the spec has changed."""
        if self._made is not None and spec != self._spec:
            self.discard()
        if self._made is None:
            self._make(spec)
        else:
            self._wrapped.start()
        self._wrapped.reload()

    def _make(self, spec: ContainerSpec) -> None:
        import docker as docker_api
        from testcontainers.core.container import DockerContainer

        made = DockerContainer(spec.image).with_command(list(spec.command)).with_exposed_ports(spec.port)
        made.env.update(spec.env)
        more: dict[str, Any] = {"labels": self._labels}
        if self.storage == "named":
            self._make_volume()
            made.with_volume_mapping(self._volume, spec.data, "rw")
        elif self.storage == "tmpfs":
            made.with_tmpfs_mount(spec.data)
        else:
            more["mounts"] = [docker_api.types.Mount(spec.data, None, type="volume", labels=self._labels)]
        for path, mode in spec.shared.items():
            made.with_volume_mapping(path, path, mode)
        made.with_kwargs(**more)
        for path, content in spec.files.items():
            made.with_copy_into_container(content.encode(), path, 0o644)
        if self._port is not None:
            made.ports[str(spec.port)] = (ports.HOST, self._port.port)  # type: ignore[assignment]
        self._made, self._spec = made, spec
        try:
            made.start()
        except docker_api.errors.APIError as error:
            raise EngineError(f"docker cannot start {spec.image}: {error.explanation or error}") from error

    def _make_volume(self) -> None:
        with contextlib.closing(docker.client()) as connected:
            connected.volumes.create(self._volume, labels=self._labels)

    @property
    def _wrapped(self) -> Any:
        return self._made.get_wrapped_container()

    def address(self) -> tuple[str, int]:
        """The current host and port."""
        assert self._spec is not None
        if self._port is not None:
            return ports.HOST, self._port.port
        return self._made.get_container_host_ip(), int(self._made.get_exposed_port(self._spec.port))

    def running(self) -> bool:
        if self._made is None or self._made._container is None:
            return False
        self._wrapped.reload()
        return str(self._wrapped.status) in ("running", "paused")

    def exit_status(self) -> int:
        self._wrapped.reload()
        return int(self._wrapped.attrs["State"]["ExitCode"])

    def kill(self) -> None:
        """SIGKILL to pid 1 of the container, which takes every process in it with it."""
        self._end(lambda: self._wrapped.kill(signal="SIGKILL"))

    def stop(self, timeout_s: float) -> None:
        self._end(lambda: self._wrapped.stop(timeout=int(timeout_s)))

    def _end(self, how: Any) -> None:
        import docker as docker_api

        if not self.running():
            return
        with contextlib.suppress(docker_api.errors.APIError):
            how()
        self._wrapped.wait()

    def pause(self) -> None:
        self._wrapped.pause()

    def resume(self) -> None:
        self._wrapped.unpause()

    def container(self) -> Any:
        """As the daemon's client has it."""
        return self._wrapped

    def mounts(self) -> list[dict[str, Any]]:
        """As the daemon lists them; none before the first start."""
        if self._made is None or self._made._container is None:
            return []
        self._wrapped.reload()
        return list(self._wrapped.attrs["Mounts"])

    def logs(self, lines_max: int) -> str:
        if self._made is None or self._made._container is None:
            return ""
        text: str = self._wrapped.logs(tail=lines_max).decode(errors="replace")
        return text

    def discard(self) -> None:
        """Remove the container, with its anonymous volume; a named volume stays."""
        made, self._made = self._made, None
        if made is not None:
            made.stop(force=True, delete_volume=True)

    def wipe(self) -> None:
        """Lose the storage, as a deleted volume does."""
        self.discard()
        if self.storage == "named":
            self._remove_volume()

    def _remove_volume(self) -> None:
        import docker as docker_api

        with contextlib.closing(docker.client()) as connected:
            with contextlib.suppress(docker_api.errors.NotFound):
                connected.volumes.get(self._volume).remove(force=True)

    def remove(self) -> None:
        self.wipe()
        if self._port is not None:
            self._port.close()
