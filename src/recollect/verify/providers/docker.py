"""Engines in containers, from images that are already on this machine. No image is ever pulled.

The name of a local image decides which engine it is (`redis:7-alpine`, `docker.io/library/postgres:16`), and
its tag is the version; the official images also give their exact version in their environment.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from recollect.verify.host.errors import NotInstalled
from recollect.verify.providers.build import Build, Gap

if TYPE_CHECKING:
    from docker import DockerClient

NAME = "docker"
_DEFAULT_SOCKET = Path("/var/run/docker.sock")
_TIMEOUT_S = 60


@dataclass(frozen=True)
class _Family:
    """Images by the last part of their repository's name."""

    engine: str
    product: str
    pattern: re.Pattern[str]
    version_variable: str


_FAMILIES = (
    _Family("redis", "Redis", re.compile(r"(^|[-_])redis($|[-_])"), "REDIS_VERSION"),
    _Family("redis", "Valkey", re.compile(r"(^|[-_])valkey($|[-_])"), "VALKEY_VERSION"),
    _Family(
        "postgres", "PostgreSQL", re.compile(r"(^|[-_])(postgres|postgresql|pgvector)($|[-_])"), "PG_VERSION"
    ),
    _Family("chroma", "Chroma", re.compile(r"(^|[-_])chroma($|[-_])"), "CHROMA_VERSION"),
)
PULLS = {"redis": ("6.2", "7", "8"), "postgres": ("15", "16", "17", "18")}
"""Official tags to suggest when no local image offers them."""


def is_on_this_host() -> bool:
    """Whether ports that the daemon publishes on its loopback address can be reached from here."""
    if _root() is not None:
        return True
    from testcontainers.core.config import ConnectionMode
    from testcontainers.core.docker_client import DockerClient

    connected = DockerClient()
    try:
        direct = connected.get_connection_mode() == ConnectionMode.docker_host
        return direct and connected.host() in ("localhost", "127.0.0.1")
    finally:
        connected.client.close()


def _root() -> Path | None:
    """The daemon's own folder, if the daemon sees the same files as we do; not so if it is on another machine, in a
    virtual machine, or outside the container that we are in."""
    try:
        return _root_at(_where())
    except NotInstalled:
        return None


@functools.cache
def _root_at(where: str) -> Path | None:
    if not where.startswith("unix:"):
        return None
    with contextlib.closing(client()) as connected:
        root = Path(connected.info()["DockerRootDir"])
    return root if root.exists() else None


def unmountable() -> str | None:
    """Why files of this machine cannot be mounted into a container; None if they can."""
    if _root() is None:
        return _daemon_missing() or (
            "the Docker daemon does not see this machine's files, so nothing can be mounted into its containers"
        )
    return None


def unseen_volumes() -> str | None:
    """Why the files in the daemon's volumes cannot be reached from here; None if they can."""
    root = _root()
    if root is None:
        return unmountable()
    if not os.access(root / "volumes", os.R_OK | os.W_OK | os.X_OK):
        return (
            f"only the user of the Docker daemon can reach its volumes ({root}): run recollect as that user"
        )
    return None


def seen_from_here(folder: str, mounts: Sequence[Mapping[str, Any]]) -> Path | None:
    """Where this machine has a folder of a container; None if it is in memory, or out of reach."""
    inside = PurePosixPath(folder)
    found = [
        Path(mount["Source"], inside.relative_to(mount["Destination"]))
        for mount in sorted(mounts, key=lambda mount: len(mount["Destination"]))
        if mount["Type"] in ("volume", "bind") and inside.is_relative_to(mount["Destination"])
    ]
    if not found or unmountable() is not None:
        return None
    return found[-1] if os.access(found[-1], os.R_OK | os.W_OK | os.X_OK) else None


def _where() -> str:
    return os.environ.get("DOCKER_HOST") or f"unix://{_DEFAULT_SOCKET}"


def client() -> DockerClient:
    """A connection to the user's daemon, or one sentence on why there is none."""
    try:
        import docker
    except ImportError as error:
        raise NotInstalled(
            f"the docker provider needs a package: `pip install testcontainers` ({error})"
        ) from error
    where = _where()
    if where.startswith("unix:") and not Path(where.removeprefix("unix:").removeprefix("//")).exists():
        raise NotInstalled(f"no Docker daemon at {where}: start one, or set DOCKER_HOST")
    try:
        connected = docker.from_env(timeout=_TIMEOUT_S)
        connected.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise NotInstalled(f"no Docker daemon answers at {where}: {error}") from error
    return connected


def builds(engine: str) -> list[Build]:
    """Local images; empty if there is no daemon, which `gaps` reports."""
    if not any(family.engine == engine for family in _FAMILIES):
        return []
    try:
        with contextlib.closing(client()) as connected:
            return [
                build
                for image in connected.images.list()
                for build in _builds_of(image)
                if build.engine == engine
            ]
    except (NotInstalled, OSError):
        return []


def gaps(engine: str, found: Sequence[Build]) -> list[Gap]:
    if engine not in PULLS:
        return []
    absent = [
        version
        for version in PULLS[engine]
        if not any(build.product != "Valkey" and build.matches(version) for build in found)
    ]
    reason = (_daemon_missing() or "no local image") if absent else ""
    return [Gap(engine, version, NAME, reason, f"docker pull {engine}:{version}") for version in absent]


def _daemon_missing() -> str | None:
    try:
        client().close()
    except NotInstalled as error:
        return str(error)
    return None


def _builds_of(image: Any) -> Iterator[Build]:
    environment = dict(
        entry.split("=", 1) for entry in image.attrs["Config"].get("Env") or [] if "=" in entry
    )
    for reference in image.tags:
        repository = reference.rpartition(":")[0]
        for family in _FAMILIES:
            if family.pattern.search(repository.rpartition("/")[2]):
                exact = re.match(r"\d+(\.\d+)*", environment.get(family.version_variable, ""))
                version = exact[0] if exact else tagged_version(reference)
                yield Build(family.engine, family.product, version, NAME, reference)


def tagged_version(reference: str) -> str:
    """The version in an image's tag, or the tag."""
    tag = reference.rpartition("/")[2].partition(":")[2] or "latest"
    tagged = re.match(r"\D*?(\d+(?:\.\d+)*)", tag)
    return tagged[1] if tagged else tag


def host_of(published: str) -> str:
    """The host of a published port: a wildcard address means this machine, or the daemon's if that is elsewhere."""
    if published not in ("0.0.0.0", "[::]", "::", ""):
        return published.strip("[]")
    from testcontainers.core.docker_client import DockerClient

    remote = DockerClient()
    try:
        return remote.host()
    finally:
        remote.client.close()


def command_of(image: str) -> list[str]:
    """The image's own CMD."""
    with contextlib.closing(client()) as connected:
        return list(connected.images.get(image).attrs["Config"].get("Cmd") or [])


def volumes_of(image: str) -> list[str]:
    """Where the image keeps data: its own VOLUMEs."""
    with contextlib.closing(client()) as connected:
        return list(connected.images.get(image).attrs["Config"].get("Volumes") or [])


def spec_name(image: str) -> str:
    """What to ask for to get another version of this image: `valkey`, `redis`, `postgres`."""
    repository = image.rpartition("/")[2].partition(":")[0]
    for family in _FAMILIES:
        if family.pattern.search(repository):
            return "valkey" if family.product == "Valkey" else family.engine
    raise NotInstalled(f"the image {image} is of no known engine, so no other version of it can be found")


def ensure_local(image: str) -> None:
    """Refuses an image that is not here, with the command that fetches it."""
    import docker

    with contextlib.closing(client()) as connected:
        try:
            connected.images.get(image)
        except docker.errors.ImageNotFound:
            raise NotInstalled(f"image {image} is not on this machine: `docker pull {image}`") from None


@functools.cache
def without_ryuk() -> None:
    """testcontainers' own reaper is an image that would have to be pulled; the warden does its job."""
    from testcontainers.core.config import testcontainers_config

    testcontainers_config.ryuk_disabled = True
