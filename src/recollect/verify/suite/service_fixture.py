"""The fixtures `service_under_test` and `remembered`: the pytest plugin registers them, or a conftest imports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from recollect.verify.suite.browser import ChatPage
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


@pytest.fixture
def remembered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., None]:
    """Says something on a page, closes the browser, loses the service, starts it again, opens the page and asks.

    ``remembered(ChatPage(service, write="#text", answers=".bot"), say=…, ask=…, expect=…, lose="kill")``. Raises
    `NotRemembered`; the paths of trace and pictures are in its message and in the report's properties.
    """
    from recollect.verify.suite import browser  # only a test that uses it pays for it

    def check(page: ChatPage, **options: Any) -> None:
        folder: Path = tmp_path_factory.mktemp("browser")
        try:
            browser.remembered(page, folder=folder, **options)
        finally:
            for kept in sorted((*folder.glob("*.png"), *folder.glob("*.zip"))):
                request.node.user_properties.append((f"recollect {kept.suffix[1:]}", str(kept)))

    return check
