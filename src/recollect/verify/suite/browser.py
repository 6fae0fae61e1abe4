"""Is it remembered, as a person in front of a browser sees it? Open the page, say something, close the browser, lose
the service, start it again, open the page, ask.

    def test_the_name_is_remembered(service_under_test, remembered):
        service = service_under_test("uvicorn myapp:app --port {port}", data_env="MYAPP_DATA")
        page = ChatPage(service, write="#message", answers=".bot")
        remembered(page, say="My name is Xiao Li.", ask="What is my name?", expect="Xiao Li")

A page is described by a few selectors (`ChatPage`). The browser is a real one, with a profile that outlives its window,
so that the page knows its user again. Of a failure there are traces, which `playwright show-trace` opens, and a picture
of each step; their paths are in the test's report.

Playwright's synchronous interface refuses a thread with an event loop, so a visit has a thread of its own: it can be
called from any test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recollect.errors import RecollectError
from recollect.verify.suite.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

Loss = Literal["kill", "power-loss", "stop"]
CALLED: dict[Loss, str] = {
    "kill": "the service was killed (SIGKILL) and started again",
    "power-loss": "the power failed, and the service was started again on what its disk had",
    "stop": "the service was stopped (SIGTERM) and started again",
}
ARGUMENTS = ("--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking")
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The headless shell first: nobody looks at the window, and it needs a third of the processor time."""
OPEN_TIMEOUT_S = 120.0
"""For the browser and its page; `ChatPage.timeout_s` is for answers."""
READY_TIMEOUT_S = 60.0
_POLL_S = 0.05


class BrowserUnavailable(RecollectError):
    """There is no Playwright, or no browser; the message says how to get it."""


class NotRemembered(AssertionError):
    """The page does not know any more what it was told; the message has the steps, and where trace and pictures are."""


@dataclass(frozen=True)
class ChatPage:
    """A page on which one talks to a service, by its selectors."""

    service: Service
    write: str
    """Where a message is typed."""
    answers: str
    """Every answer of the service, in their order on the page."""
    send: str = "Enter"
    """What is clicked to send it, or ``Enter``."""
    path: str = "/"
    ready: str = ""
    """Something that is there once the page can be used; by default, the place to type."""
    settled: str = ""
    """Something that is there once an answer is complete; without it, it is when it has stood still for `quiet_s`."""
    request: tuple[str, str] | None = None
    """``("POST", "/chat")``: the service is lost at the moment this request of `say` is answered, not after the page
    was closed."""
    quiet_s: float = 0.5
    timeout_s: float = 30.0


@dataclass
class Visit:
    """What happened so far, and what is kept of it."""

    folder: Path
    steps: list[tuple[str, str]] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)

    def told(self) -> str:
        lines = [f"  {name:8} {text}" for name, text in self.steps]
        lines += [f"  trace    playwright show-trace {path}" for path in self.traces]
        return "\n".join([*lines, *(f"  picture  {path}" for path in self.pictures)])


def chromium() -> str | None:
    """RECOLLECT_CHROMIUM, or the first that is installed; None leaves it to Playwright's own."""
    if chosen := os.environ.get("RECOLLECT_CHROMIUM"):
        return shutil.which(chosen) or chosen
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def remembered(
    page: ChatPage, *, say: str, ask: str, expect: str, folder: Path, lose: Loss = "kill"
) -> Visit:
    """Says it, loses the service, asks for it; raises `NotRemembered` unless the answer has what is expected."""
    if lose not in CALLED:
        raise ValueError(f"lose={lose!r}: use one of {', '.join(CALLED)}")
    visit = Visit(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1, "recollect-browser") as own_thread:
        own_thread.submit(_go_through, page, visit, say, ask, expect, lose).result()
    return visit


def _go_through(page: ChatPage, visit: Visit, say: str, ask: str, expect: str, lose: Loss) -> None:
    profile = visit.folder / "profile"
    try:
        with _opened(page, profile, visit, "1-said") as first:
            with _struck(page, lose) if page.request is not None else contextlib.nullcontext():
                answer = _talk(first, page, say)
            visit.steps += [("said", say), ("answered", answer)]
        _lose(page, lose)
        visit.steps.append(("lost", CALLED[lose]))
        with _opened(page, profile, visit, "2-asked") as second:
            found = _talk(second, page, ask, expect)
            visit.steps += [("asked", ask), ("answered", found)]
            if expect not in found:
                raise NotRemembered(f"not remembered: {expect!r} is not in the answer\n{visit.told()}")
    except NotRemembered as forgotten:
        # The traces of both windows are complete only now.
        raise NotRemembered(f"{str(forgotten).splitlines()[0]}\n{visit.told()}") from None
    finally:
        shutil.rmtree(profile, ignore_errors=True)
    for path in (*visit.pictures, *visit.traces):
        path.unlink(missing_ok=True)


# ---- the service


@contextlib.contextmanager
def _struck(page: ChatPage, lose: Loss) -> Iterator[None]:
    """Dead at the very moment its answer is complete."""
    assert page.request is not None
    strikes: dict[Loss, Callable[..., Any]] = {
        "kill": page.service.kill_after_response,
        "power-loss": page.service.power_loss_after_response,
        "stop": page.service.stop_during_response,
    }
    with strikes[lose](*page.request):
        yield


def _lose(page: ChatPage, lose: Loss) -> None:
    service = page.service
    if service.alive:
        {"kill": service.kill, "power-loss": service.power_loss, "stop": service.stop}[lose]()
    service.start()


# ---- the browser


def _await_ready(window: Page, page: ChatPage) -> None:
    from playwright.sync_api import TimeoutError as NotThere

    selector = page.ready or page.write
    try:
        window.wait_for_selector(selector, timeout=READY_TIMEOUT_S * 1000)
    except NotThere:
        raise NotRemembered(
            f"{page.path} shows nothing that matches {selector!r} within {READY_TIMEOUT_S:g} s; check the selector"
        ) from None


@contextlib.contextmanager
def _opened(page: ChatPage, profile: Path, visit: Visit, name: str) -> Iterator[Page]:
    """A window on the page, closed with the whole browser; a picture and a trace of it are kept."""
    playwright = _playwright()
    with playwright() as started:
        context = _launch(started, profile)
        context.set_default_timeout(OPEN_TIMEOUT_S * 1000)
        context.tracing.start(screenshots=True, snapshots=True)
        window = context.pages[0] if context.pages else context.new_page()
        try:
            window.goto(f"{page.service.base_url}{page.path}")
            _await_ready(window, page)
            yield window
        finally:
            with contextlib.suppress(Exception):  # the browser may be what failed
                window.screenshot(path=visit.folder / f"{name}.png")
                visit.pictures.append(visit.folder / f"{name}.png")
            with contextlib.suppress(Exception):
                context.tracing.stop(path=visit.folder / f"{name}.zip")
                visit.traces.append(visit.folder / f"{name}.zip")
            context.close()


def _playwright() -> Callable[[], Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BrowserUnavailable("remembered() needs Playwright: pip install 'recollect[browser]'") from None
    return sync_playwright


def _launch(playwright: Any, profile: Path) -> BrowserContext:
    from playwright.sync_api import Error

    arguments = [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    path = chromium()
    try:
        context: BrowserContext = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=path, args=arguments, timeout=OPEN_TIMEOUT_S * 1000
        )
    except Error as error:
        first = str(error).strip().splitlines()[0]
        raise BrowserUnavailable(
            f"no browser ({path or 'none found'}): {first}; apt-get install chromium, `playwright install chromium`, or"
            " set RECOLLECT_CHROMIUM to one"
        ) from None
    return context


def _talk(window: Page, page: ChatPage, text: str, expect: str | None = None) -> str:
    """Sends the text and returns the answer, when it is complete or has what is expected."""
    answers = window.locator(page.answers)
    before = answers.count()
    window.fill(page.write, text)
    if page.send == "Enter":
        window.press(page.write, "Enter")
    else:
        window.click(page.send)
    answer, since = "", time.monotonic()
    deadline = since + page.timeout_s
    while time.monotonic() < deadline:
        now = answers.last.inner_text() if answers.count() > before else ""
        if now != answer:
            answer, since = now, time.monotonic()
        if expect is not None and expect in answer:
            return answer
        if answer and _is_complete(window, page, since):
            return answer
        window.wait_for_timeout(_POLL_S * 1000)
    if not answer:
        raise NotRemembered(f"there is no answer to {text!r} within {page.timeout_s:g} s ({page.answers})")
    return answer


def _is_complete(window: Page, page: ChatPage, since: float) -> bool:
    if page.settled:
        return window.locator(page.settled).count() > 0
    return time.monotonic() - since > page.quiet_s
