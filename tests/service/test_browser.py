"""The fixture `remembered`: a page in a real browser, whose service is lost and comes back."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.browser import BrowserUnavailable, ChatPage, NotRemembered
from recollect.browser import remembered as remembered
from recollect.verify.suite import browser
from recollect.verify.suite.service import Service
from recollect.verify.suite.service_fixture import service_under_test as service_under_test
from tests.chromium import executable

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(executable() is None, reason="no Chromium: apt-get install chromium"),
]

Start = Callable[..., Service]
Remembered = Callable[..., None]
PLANTED = [sys.executable, "-S", str(Path(__file__).with_name("planted_page.py")), "{port}"]
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "browser-page"
STORY = {"say": "My name is Xiao Li.", "ask": "What is my name?", "expect": "Xiao Li"}


def page_of(start: Start, mode: str, **options: object) -> ChatPage:
    service = start(PLANTED, health="/", env={"MODE": mode}, **options)
    return ChatPage(service, write="#message", answers=".bot", quiet_s=0.1)


async def test_an_honest_page_remembers_when_killed_also_where_an_event_loop_runs(
    service_under_test: Start, remembered: Remembered
) -> None:
    await asyncio.sleep(0)
    remembered(page_of(service_under_test, "honest"), **STORY)


def test_the_example_forgets_and_its_report_has_trace_and_pictures(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    words = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'kept'}", f"--junit-xml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-c", str(EXAMPLE / "pyproject.toml"), str(EXAMPLE)],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not remembered: 'Xiao Li' is not in the answer" in done.stdout
    assert "answered You have not told me." in done.stdout
    kept = {path.name: path for path in tmp_path.glob("kept/**/*.*") if path.suffix in (".png", ".zip")}
    assert sorted(kept) == ["1-said.png", "1-said.zip", "2-asked.png", "2-asked.zip"]
    assert all(path.stat().st_size > 0 and str(path) in done.stdout for path in kept.values())
    assert all(str(path) in report.read_text() for path in kept.values())


@pytest.mark.parametrize("mode", ["honest", "unsynced"])
def test_a_power_loss_at_the_moment_of_the_answer(
    service_under_test: Start, remembered: Remembered, mode: str
) -> None:
    found = page_of(service_under_test, mode, disk=True)
    page = ChatPage(
        found.service, write="#message", answers=".bot", send="button", quiet_s=0.1, request=("POST", "/say")
    )
    if mode == "honest":
        remembered(page, **STORY, lose="power-loss")
    else:
        with pytest.raises(NotRemembered, match="the power failed"):
            remembered(page, **STORY, lose="power-loss")


def test_a_page_that_is_described_wrongly_is_said(
    service_under_test: Start, remembered: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_of(service_under_test, "honest")
    with pytest.raises(ValueError, match="lose='power': use one of kill, power-loss, stop"):
        remembered(page, **STORY, lose="power")
    monkeypatch.setattr(browser, "READY_TIMEOUT_S", 0.1)
    with pytest.raises(NotRemembered, match=r"/ shows nothing that matches '#msg'[\s\S]*picture"):
        remembered(ChatPage(page.service, write="#msg", answers=".bot"), **STORY)


def test_a_browser_that_is_not_there_is_said(
    service_under_test: Start, remembered: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_CHROMIUM", "/nowhere/chromium")
    with pytest.raises(BrowserUnavailable, match="apt-get install chromium"):
        remembered(page_of(service_under_test, "honest"), **STORY)
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(BrowserUnavailable, match=r"recollect\[browser\]"):
        browser._playwright()
