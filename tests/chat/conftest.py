"""The real thing for the browser tests: the service as a process behind the fixture's proxy, and a real Chromium."""

import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, async_playwright

from recollect.service import Service
from recollect.service_fixture import service_under_test as service_under_test

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
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


def chromium() -> str:
    """RECOLLECT_CHROMIUM, or the first that is installed; the test is skipped, and says so, where there is none."""
    chosen = os.environ.get("RECOLLECT_CHROMIUM")
    names = [chosen] if chosen else ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no Chromium: apt-get install chromium, or set RECOLLECT_CHROMIUM to one")


OpenBrowser = Callable[..., Awaitable[BrowserContext]]


@pytest.fixture
async def open_browser(tmp_path: Path) -> AsyncIterator[OpenBrowser]:
    """Opens a browser on a profile that outlives it: closing the context is closing the browser."""
    executable = chromium()
    opened: list[BrowserContext] = []
    async with async_playwright() as playwright:

        async def open_one(profile: str = "profile", **options: Any) -> BrowserContext:
            context = await playwright.chromium.launch_persistent_context(
                str(tmp_path / profile), executable_path=executable, args=ARGUMENTS, **options
            )
            opened.append(context)
            return context

        yield open_one
        for context in opened:
            await context.close()


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
    before = await page.locator(".reply").count()
    await page.fill("#text", text)
    await page.keyboard.press("Enter")
    # The note below a reply comes with its end.
    await page.locator(".reply").nth(before).locator(".note, details").first.wait_for()
    return await page.locator(".reply").nth(before).locator(".bubble").inner_text()


async def memories(page: Page) -> list[str]:
    return await page.locator("#memories li p").all_inner_texts()
