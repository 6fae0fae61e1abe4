"""A service of the user's own compose file, brought up as a project of its own and taken down with its
volumes.

The user's file is not run as it is: two runs would fight over its published ports, and `down -v` would delete
a volume that has a fixed name in the file. Compose itself resolves the file, and these things are changed in
the result:

- every published port becomes a free one of this host, the same at every start (if the daemon is elsewhere, a random
  one), read again after each start;
- `container_name`, `restart` and fixed volume and network names are removed, so that all belongs to our project;
- folders of the host are mounted read-only: data in them is the user's, not ours to break; one that is where the
  image keeps its data (`./data:/data`) becomes an empty volume of ours, so that the service can write;
- an external volume is refused for the same reason;
- everything that compose creates from it carries our labels, by which it is removed.
"""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from recollect.verify.host import folder, ports
from recollect.verify.host.errors import EngineError, NotInstalled, NotOurs, UnknownName
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers import docker, docker_sweep

NAME = "compose"
_TIMEOUT_S = 120.0
_numbers = itertools.count(1)


@functools.cache
def command() -> tuple[str, ...]:
    """`docker compose`, or the older `docker-compose`."""
    if shutil.which("docker"):
        done = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if done.returncode == 0:
            return ("docker", "compose")
    if shutil.which("docker-compose"):
        return ("docker-compose",)
    raise NotInstalled(
        "the compose provider needs `docker compose` or `docker-compose`: `apt-get install docker-compose`"
    )


@functools.cache
def image_of(file: str, service: str) -> str:
    """The image that a compose file names for a service."""
    made = ComposeService(Path(file), service)
    made.remove()
    return made.image


class NamedServices(NamedTuple):
    """What stands after `compose:`."""

    file: Path
    service: str
    beside: tuple[str, ...]


def place_of(text: str) -> NamedServices:
    """`FILE#SERVICE` or `FILE#SERVICE,OTHER`; a file's name may have a # as well."""
    file, _, names = text.rpartition("#")
    service, *beside = (name.strip() for name in names.split(","))
    if not file or not service or not all(beside):
        raise EngineError(
            f"compose:{text} names no service; write --provider compose:FILE#SERVICE, or #SERVICE,OTHER"
        )
    return NamedServices(Path(file), service, tuple(beside))


def check(text: str) -> None:
    """Raises `EngineError` for what can be seen to be wrong without compose and without a daemon."""
    import yaml

    file, service, beside = place_of(text)
    _check_file(file)
    try:
        # Nodes only: compose has tags of its own.
        top = _children(yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = 0 if error.problem_mark is None else error.problem_mark.line + 1
        raise EngineError(f"{file} is no compose file: line {line}: {error.problem}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise EngineError(f"{file} is no compose file: {error}") from None
    if "services" not in top and "include" not in top:
        raise EngineError(f"{file} is no compose file: it has no services")
    services = _children(top.get("services"))
    for name in (service, *beside):
        if name not in services and "include" not in top and "<<" not in services:
            raise UnknownName(f"service in {file.name}", name, services)


def _children(node: Any) -> dict[str, Any]:
    """The keys and values of a YAML mapping."""
    pairs = node.value if node is not None and node.id == "mapping" else []
    return {str(key.value): value for key, value in pairs}


def _check_file(file: Path) -> None:
    if not file.is_file():
        raise EngineError(f"no compose file {file}; write --provider compose:FILE#SERVICE")


class ComposeService:
    """One service of one file, in a project of this run, and others beside it."""

    def __init__(self, file: Path, service: str, data: str | None = None, beside: Sequence[str] = ()) -> None:
        """`data` is where the service keeps its data, whatever its image says. `beside` are other services that are
        brought up with it; nothing is done to them."""
        _check_file(file)
        self._client = docker.client()
        docker_sweep.register()
        self.file = file.resolve()
        self.service = service
        self.project = docker_sweep.name_of(next(_numbers))
        self._data = data
        self._ports: list[ports.Reservation] = []
        self.resolved = self._resolve()
        services: dict[str, Any] = self.resolved["services"]
        for name in (service, *beside):
            if name not in services:
                raise UnknownName(f"service in {file.name}", name, services)
        self.beside = tuple(beside)
        self.definition: dict[str, Any] = services[service]
        self._ours = folder.subfolder("compose") / "compose.yaml"
        # JSON is YAML, and every version of compose reads it.
        self._ours.write_text(json.dumps(self.resolved, default=str))
        self._as_resolved = json.dumps(self.definition, default=str)
        self._added: dict[str, Any] = {}
        self._changed = False
        self._brought_up = False
        self._number: str | None = None
        """The id of the service's container, once it is up."""

    # Changing the file --------------------------------------------------------------------------

    def _resolve(self) -> dict[str, Any]:
        import yaml

        resolved: dict[str, Any] = yaml.safe_load(self._run(["config"], self.file))
        resolved.pop("name", None)
        resolved["volumes"] = resolved.get("volumes") or {}
        for name, definition in resolved["services"].items():
            self._isolate(name, definition)
            definition["volumes"] = self._mounts(name, definition, resolved["volumes"])
        resolved["networks"] = {"default": None, **(resolved.get("networks") or {})}
        for kind in ("volumes", "networks"):
            resolved[kind] = {
                name: self._shared(kind, name, definition or {})
                for name, definition in (resolved.get(kind) or {}).items()
            }
        return resolved

    def _shared(self, kind: str, name: str, definition: dict[str, Any]) -> dict[str, Any]:
        """A volume or network, as one of our own."""
        if definition.get("external"):
            if kind == "volumes":
                raise NotOurs(
                    f"volume {name!r} of {self.file.name} is external: its data is not ours to break"
                )
            return definition
        kept = {key: value for key, value in definition.items() if key != "name"}
        return {**kept, "labels": _labelled(definition.get("labels"))}

    def _isolate(self, name: str, definition: dict[str, Any]) -> None:
        for key in ("container_name", "restart"):
            definition.pop(key, None)
        if definition.get("ports"):
            definition["ports"] = [self._published(port) for port in definition["ports"]]
        if "image" in definition:
            docker.ensure_local(definition["image"])
        definition["labels"] = _labelled(definition.get("labels"))

    def _mounts(self, name: str, definition: dict[str, Any], volumes: dict[str, Any]) -> list[Any]:
        """Folders of the host read-only, or as a volume of ours that is added to those of the file."""
        kept = docker.volumes_of(definition["image"]) if "image" in definition else []
        if name == self.service and self._data:
            kept += [self._data, f"{self._data}/data"]
        mounts: list[Any] = []
        for number, volume in enumerate(definition.get("volumes") or ()):
            source, target = _bound(volume)
            if target and not Path(source).is_file() and any(_holds(target, place) for place in kept):
                volumes[f"{name}-data-{number}"] = None
                mounts.append(f"{name}-data-{number}:{target}")
            else:
                mounts.append(_read_only(volume) if target else volume)
        return mounts

    def _published(self, port: Any) -> str:
        """The container's side is the file's. On this host, its other side is ours, and not open to the network."""
        if isinstance(port, dict):
            container = f"{port['target']}/{port.get('protocol', 'tcp')}"
        else:
            container = str(port).rpartition(":")[2]
        if not docker.is_on_this_host():
            return container
        if "-" in container:  # a range
            return f"{ports.HOST}::{container}"
        self._ports.append(ports.Reservation())
        return f"{ports.HOST}:{self._ports[-1].port}:{container}"

    def add(self, **added: Any) -> None:
        """From the next start on: `image` and `command` instead of the file's, `environment` and `volumes` beside them.
        What the service had before is forgotten. Compose makes a new container then, on the same volumes."""
        added = {key: value for key, value in added.items() if value}
        if added == self._added:
            return
        self._added, self._changed = added, True
        definition = self.of_file
        environment = {**_mapping(definition.get("environment")), **added.get("environment", {})}
        definition |= {key: added[key] for key in ("image", "command") if key in added}
        definition |= {"environment": environment} if environment else {}
        definition["volumes"] = [*definition.get("volumes", ()), *added.get("volumes", ())]
        self.definition = self.resolved["services"][self.service] = definition
        self._ours.write_text(json.dumps(self.resolved, default=str))

    @property
    def of_file(self) -> dict[str, Any]:
        """Its definition before anything was added to it."""
        definition: dict[str, Any] = json.loads(self._as_resolved)
        return definition

    @property
    def image(self) -> str:
        """The image that its file names, or that compose would build under the project's name."""
        return str(self.of_file.get("image") or f"{self.project}_{self.service}")

    # Running it ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Brings it up with what it depends on, or starts it again; returns when its health check, if any, passes."""
        if self._number is None or self._changed:
            self._brought_up, self._changed = True, False
            self._run(["up", "-d", self.service, *self.beside])
            self._number = self._found(self.service)
        else:
            self.container().start()
        for name in (self.service, *self.beside):
            if self.resolved["services"][name].get("healthcheck"):
                self._wait_until_healthy(name, self._number if name == self.service else self._found(name))

    def _wait_until_healthy(self, name: str, number: str | None) -> None:
        def done() -> bool:
            state = self._client.containers.get(number).attrs["State"]
            return state.get("Health", {}).get("Status") == "healthy" or not state["Running"]

        wait_until(done, _TIMEOUT_S, f"service {name!r} did not become healthy")

    def _found(self, service: str) -> str:
        """Asked of the daemon, as is everything but `up` and `down`: each call of compose takes a second."""
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        made = self._client.containers.list(all=True, filters={"label": labels}, ignore_removed=True)
        if not made:
            raise EngineError(f"compose up of {self.file} made no container for the service {service!r}")
        return str(made[0].id)

    def kill(self) -> None:
        if self.running():
            self.container().kill(signal="SIGKILL")
            self.container().wait()

    def stop(self, timeout_s: float) -> None:
        if self.running():
            self.container().stop(timeout=int(timeout_s))

    def pause(self) -> None:
        self.container().pause()

    def resume(self) -> None:
        self.container().unpause()

    def wipe(self) -> None:
        """Removes its container and volumes. Other services keep theirs; what the file mounts from the host stays."""
        if self._number is None:
            return
        volumes = [mount["Name"] for mount in self.mounts() if mount["Type"] == "volume"]
        self.container().remove(force=True, v=True)
        self._number = None
        for name in volumes:
            self._remove_volume(name)

    def _remove_volume(self, name: str) -> None:
        import docker as docker_api

        try:
            self._client.volumes.get(name).remove(force=True)
        except docker_api.errors.NotFound:
            return  # an anonymous one, which went with its container
        except docker_api.errors.APIError as error:
            raise EngineError(
                f"the volume of service {self.service!r} cannot be wiped: another service uses it too ({error})"
            ) from error

    def remove(self) -> None:
        if self._brought_up:
            self._run(["down", "-v", "--remove-orphans"])
        self._number, self._brought_up = None, False
        self._client.close()
        for port in self._ports:
            port.close()

    def running(self) -> bool:
        return self._number is not None and bool(self._state()["Running"])

    def exit_status(self) -> int:
        return int(self._state()["ExitCode"])

    def container(self) -> Any:
        """As the daemon's client has it."""
        return self._client.containers.get(self._number)

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.container().attrs["State"]
        return state

    def mounts(self) -> list[dict[str, Any]]:
        """As the daemon lists them; none before the first start."""
        return [] if self._number is None else list(self.container().attrs["Mounts"])

    def address(self, port: int | None, service: str | None = None) -> tuple[str, int]:
        """The current host and port, of this service or of one beside it; None is the first port that it publishes."""
        name = service or self.service
        made = self.container() if name == self.service else self._client.containers.get(self._found(name))
        found = made.attrs["NetworkSettings"]["Ports"]
        published = next(filter(None, found.values()), None) if port is None else found.get(f"{port}/tcp")
        if not published:
            asked = "port" if port is None else f"port {port}"
            raise EngineError(f"service {name!r} publishes no {asked}; add it under `ports:` in {self.file}")
        return docker.host_of(published[0]["HostIp"]), int(published[0]["HostPort"])

    def logs(self, lines_max: int) -> str:
        if self._number is None:
            return ""
        text: str = self.container().logs(tail=lines_max).decode(errors="replace")
        return text

    def _run(self, arguments: Sequence[str], file: Path | None = None) -> str:
        argv = [*command(), "-p", self.project, "-f", str(file or self._ours)]
        argv += ["--project-directory", str(self.file.parent), *arguments]
        try:
            # Marked as this run's, so that the warden ends it before it sweeps: a killed runner's compose would go on
            # and create what nobody removes.
            with folder.marked():
                done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"compose {arguments[0]} did not end within {_TIMEOUT_S:g} s") from error
        if done.returncode != 0:
            last = "\n".join(f"    {line}" for line in done.stderr.strip().splitlines()[-8:])
            raise EngineError(f"compose {arguments[0]} of {self.file} failed:\n{last}")
        return done.stdout


def _mapping(value: Any) -> dict[str, Any]:
    """Compose allows a mapping or a list of NAME=VALUE."""
    return value if isinstance(value, dict) else dict(str(item).partition("=")[::2] for item in value or ())


def _labelled(labels: Any) -> dict[str, str]:
    return {**_mapping(labels), **docker_sweep.labels()}


def _bound(volume: Any) -> tuple[str, str]:
    """The folder or file of the host, and where it is mounted; both empty if it is a volume."""
    if isinstance(volume, dict):
        return (str(volume["source"]), str(volume["target"])) if volume.get("type") == "bind" else ("", "")
    source, *rest = str(volume).split(":")
    return (source, rest[0]) if rest and source.startswith((".", "/", "~")) else ("", "")


def _holds(target: str, place: str) -> bool:
    """Whether what is mounted there holds this folder."""
    return PurePosixPath(place).is_relative_to(PurePosixPath(target))


def _read_only(volume: Any) -> Any:
    if isinstance(volume, dict):
        return {**volume, "read_only": True}
    source, target, *_ = str(volume).split(":")
    return f"{source}:{target}:ro"
