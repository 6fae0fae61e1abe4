"""A second container like one that runs, beside it in the same network: what a replica lives in.

Image, environment, command and settings are those of the first, as the daemon tells them, so it does not matter who
made that one: we, compose from a user's file, or the user's own fixture. Its data is its own: volumes are new and
empty, and what the first one has of the host is mounted read-only, unless that is where its data is.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from recollect.verify.host import ports
from recollect.verify.host.errors import EngineError
from recollect.verify.providers import docker, docker_sweep
from recollect.verify.providers.live import LiveContainer


def place_of(container: Any, port: int) -> tuple[str, int]:
    """Where others in its network reach it."""
    container.reload()
    for network in container.attrs["NetworkSettings"]["Networks"].values():
        if network.get("IPAddress"):
            return str(network["IPAddress"]), port
    raise EngineError("the container has no address in any network, so no replica can reach it")


def run_in(container: Any, argv: Sequence[str]) -> None:
    """Runs a command inside; raises what it printed if it fails."""
    code, output = container.exec_run(list(argv))
    if code != 0:
        said = output.decode(errors="replace").strip()
        raise EngineError(f"{argv[0]} inside the container ended with status {code}: {said}")


class NeighbourContainer(LiveContainer):
    """`first` is a running container of docker-py. This one is created at once, and started by `start()`."""

    def __init__(
        self, first: Any, port: int, data: str, files: Mapping[str, str], before: Sequence[str] = ()
    ) -> None:
        """`data` is where the first one keeps its data, `files` are text files to put in, and `before` is a command
        that gets the first one's own command as further words."""
        docker_sweep.register()
        self._client = docker.client()
        self._internal = port
        self._port = ports.Reservation() if docker.is_on_this_host() else None
        first.reload()
        config, labels = first.attrs["Config"], docker_sweep.labels()
        words = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
        try:
            self._container = self._client.containers.create(
                config["Image"],
                entrypoint=[*before, *words],
                command=[],
                environment=list(config.get("Env") or ()),
                user=config.get("User") or "",
                labels=labels,
                mounts=_mounts(first.attrs["Mounts"], data, labels),
                tmpfs=dict(first.attrs["HostConfig"].get("Tmpfs") or {}),
                network=next(iter(first.attrs["NetworkSettings"]["Networks"])),
                ports={f"{port}/tcp": (ports.HOST, self._port.port) if self._port else None},
            )
            for path, content in files.items():
                self._put(path, content)
        except BaseException:
            self.remove()
            raise

    def _put(self, path: str, content: str) -> None:
        packed, raw = io.BytesIO(), content.encode()
        with tarfile.TarFile(fileobj=packed, mode="w") as tar:
            entry = tarfile.TarInfo(PurePosixPath(path).name)
            entry.size, entry.mode = len(raw), 0o644
            tar.addfile(entry, io.BytesIO(raw))
        self._container.put_archive(str(PurePosixPath(path).parent), packed.getvalue())

    def address(self) -> tuple[str, int]:
        if self._port is not None:
            return ports.HOST, self._port.port
        published = self._attributes()["NetworkSettings"]["Ports"][f"{self._internal}/tcp"][0]
        return docker.host_of(published["HostIp"]), int(published["HostPort"])

    def wipe(self) -> None:
        raise EngineError("a replica's data comes from its primary: close it and make another one")

    def remove(self) -> None:
        import docker as docker_api

        made = getattr(self, "_container", None)
        if made is not None:
            with contextlib.suppress(docker_api.errors.NotFound):
                made.remove(force=True, v=True)
        self._client.close()
        if self._port is not None:
            self._port.close()


def _mounts(mounts: Sequence[Mapping[str, Any]], data: str, labels: Mapping[str, str]) -> list[Any]:
    import docker as docker_api

    made = []
    for mount in mounts:
        target = mount["Destination"]
        if mount["Type"] == "bind" and not PurePosixPath(data).is_relative_to(target):
            made.append(docker_api.types.Mount(target, mount["Source"], type="bind", read_only=True))
        elif mount["Type"] in ("bind", "volume"):
            made.append(docker_api.types.Mount(target, None, type="volume", labels=dict(labels)))
    return made
