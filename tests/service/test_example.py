"""The tests that `docs/service-under-test.md` shows, as they stand there."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.browser import remembered as remembered
from recollect.verify.suite.service import Service
from recollect.verify.suite.service_fixture import service_under_test as service_under_test
from tests.chromium import executable
from tests.docs.blocks import python_of, run_python

HERE = Path(__file__).parent
NOTES = [sys.executable, "-m", "uvicorn", "example_app:app", "--app-dir", str(HERE)]
CHAT = [sys.executable, "-S", str(HERE / "planted_page.py"), "{port}"]
Start = Callable[..., Service]

full = pytest.mark.skipif("RECOLLECT_FULL_DOCS" not in os.environ, reason="set RECOLLECT_FULL_DOCS=1")


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """All of its code; a test file has imported httpx above."""
    names: dict[str, Any] = {"httpx": httpx}
    for code in python_of("docs/service-under-test.md"):
        run_python(code, names, "docs/service-under-test.md")
    return names


def _ours(start: Start) -> Start:
    """With our application in the place of the reader's."""

    def run(command: str, **options: Any) -> Service:
        program, app, *more = command.split()
        assert (program, app) == ("uvicorn", "myapp:app")
        return start([*NOTES, *more], **options)

    return run


def test_an_answered_note_survives_the_process(page: dict[str, Any], service_under_test: Start) -> None:
    page["test_an_answered_note_survives_the_process"](_ours(service_under_test))


@full
def test_an_answered_note_survives_the_power(page: dict[str, Any], service_under_test: Start) -> None:
    page["test_an_answered_note_survives_the_power"](_ours(service_under_test))


@full
@pytest.mark.skipif(executable() is None, reason="no Chromium: apt-get install chromium")
def test_the_name_is_remembered(
    page: dict[str, Any], service_under_test: Start, remembered: Callable[..., None]
) -> None:
    def start(_: str, **options: Any) -> Service:
        options["data_env"] = "DATA_DIR"  # where the page of ours looks
        return service_under_test(CHAT, health="/", env={"MODE": "honest"}, **options)

    page["test_the_name_is_remembered"](start, remembered)


def test_all_of_the_page_is_here(page: dict[str, Any]) -> None:
    assert {name for name in page if name.startswith("test_")} <= globals().keys()
