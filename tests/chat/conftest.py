"""The real thing for the browser tests: the service as a process behind the fixture's proxy, and a real Chromium."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Playwright, async_playwright

from recollect.verify.suite.service import Service
from recollect.verify.suite.service_fixture import service_under_test as service_under_test
from tests.chromium import ARGUMENTS, executable

CHAT = [
    sys.executable,
    "-m",
    "recollect.cli",
    "chat",
    "--memory",
    "sqlite:///{data}/memory.db",
    "--index",
    "none",
    "--port",
    "{port}",
    "--allow-ephemeral",
]
CHROMIUM = [*ARGUMENTS, "--disable-dev-shm-usage"]


def chromium() -> str:
    """The browser; the test is skipped, and says so, where there is none."""
    return executable() or pytest.skip(
        "no Chromium: apt-get install chromium, or set RECOLLECT_CHROMIUM to one"
    )


OpenBrowser = Callable[..., Awaitable[BrowserContext]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def playwright() -> AsyncIterator[Playwright]:
    async with async_playwright() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def open_browser(playwright: Playwright, tmp_path: Path) -> AsyncIterator[OpenBrowser]:
    """Opens a browser on a profile that outlives it: closing the context is closing the browser."""
    path = chromium()
    opened: list[BrowserContext] = []

    async def open_one(**options: Any) -> BrowserContext:
        context = await playwright.chromium.launch_persistent_context(
            str(tmp_path / "profile"), executable_path=path, args=CHROMIUM, **options
        )
        opened.append(context)
        return context

    yield open_one
    for context in opened:
        await context.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(playwright: Playwright) -> AsyncIterator[Browser]:
    """One browser for the tests that do not care about its life; each opens contexts of its own."""
    started = await playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM)
    yield started
    await started.close()


@pytest.fixture(scope="session")
def lasting_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for the tests that do not break it; a new browser context is a new user."""
    service = Service(CHAT, tmp_path_factory.mktemp("lasting"), data_env="RECOLLECT_DATA")
    yield service.start()
    service.close()


@pytest.fixture
def chat_service(service_under_test: Callable[..., Service]) -> Callable[..., Service]:
    def start(*more: str, **options: Any) -> Service:
        return service_under_test([*CHAT, *more], data_env="RECOLLECT_DATA", **options)

    return start


async def open_page(context: BrowserContext, service: Service, query: str = "") -> Page:
    page = await context.new_page()
    await page.goto(f"{service.base_url}/{query}")
    await page.wait_for_selector("body[data-ready]")
    return page


async def say(page: Page, text: str) -> str:
    """Types it, sends it by keyboard, and waits for the complete reply."""
    said = await page.locator(".said").count()
    await page.fill("#text", text)
    await page.keyboard.press("Enter")
    await page.locator(".said").nth(said).locator(".note[data-settled]").wait_for()
    return await page.locator(".reply").last.locator(".bubble").inner_text()


async def memories(page: Page) -> list[str]:
    return await page.locator("#memories li p").all_inner_texts()
