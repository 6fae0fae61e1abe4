"""The pytest fixture `service_under_test`. The pytest plugin registers it; or import it in a conftest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from recollect.verify.suite.service import Service


@pytest.fixture
def service_under_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Service]]:
    """Starts a command as a service on a data folder of its own; returns a `Service`.

    ``service_under_test(command, health="/health", data_env="DATA_DIR", …)``. Everything that was started is ended when
    the test ends.
    """
    from recollect.verify.suite.service import Service  # only a test that uses it pays for it

    services: list[Service] = []

    def start(command: str | Sequence[str], **options: Any) -> Service:
        service = Service(command, tmp_path_factory.mktemp("service"), **options)
        services.append(service)
        return service.start()

    try:
        yield start
    finally:
        for service in services:
            service.close()
