"""One daemon and one set of images for all docker and compose tests of a run; they share an xdist group."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

import pytest

from recollect.verify import providers
from recollect.verify.host.errors import NotInstalled
from recollect.verify.providers import docker
from recollect.verify.providers.build import Build
from tests.providers import docker_daemon, docker_images

REDIS_7, REDIS_6, VALKEY = "recollect-test-redis:7.0", "recollect-test-redis:6.2", "recollect-test-valkey:9.1"
POSTGRES_16, CHROMA = "recollect-test-postgres:16", "recollect-test-chroma:1.5"
IMAGES = {
    "redis@7": REDIS_7,
    "redis@6.2": REDIS_6,
    "valkey": VALKEY,
    "postgres@16": POSTGRES_16,
    "chroma": CHROMA,
}
"""What each is made of."""
_IMPORTS = {
    "redis": docker_images.import_redis,
    "valkey": docker_images.import_redis,
    "postgres": docker_images.import_postgres,
    "chroma": docker_images.import_chroma,
}


@pytest.fixture(scope="session")
def lasting_daemon() -> Iterator[str]:
    """Out of sight between its tests: others on the same worker would find its images."""
    try:
        with docker_daemon.available() as address:
            make_images()
            before = os.environ.pop("DOCKER_HOST", None)
            yield address
            if before is not None:
                os.environ["DOCKER_HOST"] = before
            remove_images()
    except docker_daemon.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def daemon(lasting_daemon: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DOCKER_HOST", lasting_daemon)
    return lasting_daemon


def make_images(images: Mapping[str, str] = IMAGES) -> None:
    with contextlib.closing(docker.client()) as client:
        for spec, image in images.items():
            _IMPORTS[spec.partition("@")[0]](client, _native(spec), image)


def _native(spec: str) -> Build:
    for provider in ("system", "wheel"):
        with contextlib.suppress(NotInstalled):
            return providers.find(spec, provider)
    pytest.skip(f"{spec} is not installed, so no image of it can be made")


def remove_images(images: Mapping[str, str] = IMAGES) -> None:
    with contextlib.closing(docker.client()) as client:
        for image in images.values():
            client.images.remove(image, force=True)
