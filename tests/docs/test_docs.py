"""What the documentation says exists: links, commands and their options, pages made from tables, code."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer

from recollect import cli
from recollect.commands.init import GITHUB, GITLAB
from tests.docs import faults_page
from tests.docs.blocks import FENCED, PAGES, PROJECT

NAMES = [str(page.relative_to(PROJECT)) for page in PAGES]

LINK = re.compile(r"\]\(([^)\s]+)\)")
INLINE = re.compile(r"`(recollect [^`]+)`")
OPTION = re.compile(r"--recollect-[a-z]+")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    """Links to other hosts are not followed, since tests have no network: only their form is checked."""
    for link in LINK.findall(page.read_text()):
        if "://" in link or link.startswith("mailto:"):
            assert _well_formed(link), f"{page.name} links to {link}"
            continue
        file, _, anchor = link.partition("#")
        there = page if not file else (page.parent / file).resolve()
        assert there.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in _anchors(there), (
                f"{page.name} links to {link}; {there.name} has {_anchors(there)}"
            )


def _well_formed(link: str) -> bool:
    """An https address with a host of at least two names, or somebody's mail; nothing left over from a sentence."""
    if link.startswith("mailto:"):
        return re.fullmatch(r"mailto:[\w.+-]+@[\w-]+(\.[\w-]+)+", link) is not None
    parts = urlsplit(link)
    host = re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc)
    return parts.scheme == "https" and host is not None and link.isascii() and link[-1] not in ".,;:'\""


@pytest.mark.parametrize(
    ("link", "good"),
    [
        ("https://redis.io/docs/latest/#aof", True),
        ("mailto:security@recollect.dev", True),
        ("http://redis.io/", False),
        ("https://redis/", False),
        ("https:/redis.io/", False),
        ("ftp://redis.io/x", False),
        ("https://redis.io/docs.", False),
        ("https://user@redis.io/", False),
        ("mailto:nobody", False),
    ],
)
def test_the_form_of_links(link: str, good: bool) -> None:
    assert _well_formed(link) is good


def _anchors(page: Path) -> list[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings]


def _commands(page: Path) -> list[str]:
    text = page.read_text()
    shown = [
        line.removeprefix("$ ").partition("  #")[0].strip()
        for _, block in FENCED.findall(text)
        for line in block.splitlines()
        if line.startswith(("recollect ", "$ recollect "))
    ]
    # The first lines of a suite's report begin with our name too.
    return [line for line in [*shown, *INLINE.findall(text)] if not line.startswith("recollect: ")]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_are_understood(page: Path) -> None:
    for command in _commands(page):
        _, *words = shlex.split(command, comments=True)
        words = [word for word in words if "…" not in word]
        words = words[: words.index(">")] if ">" in words else words
        if not words or words[0].startswith("-"):
            continue
        assert words[0] in cli.COMMANDS, f"{page.name}: {command}"
        group: Any = typer.main.get_command(cli.build(words))
        try:
            group.commands[words[0]].make_context(words[0], words[1:])
        except Exception as error:  # typer brings a click of its own, whose errors have no public name
            mentioned = len(words) == 1 and type(error).__name__ == "MissingParameter"
            if not mentioned:
                pytest.fail(f"{page.name}: {command}: {getattr(error, 'message', error)}")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_options_of_the_plugin_exist(page: Path, pytestconfig: pytest.Config) -> None:
    for option in OPTION.findall(page.read_text()):
        pytestconfig.getoption(option)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_python_is_python(page: Path) -> None:
    for language, block in FENCED.findall(page.read_text()):
        if language == "python":
            compile(block, str(page), "exec", flags=0x2000)  # top-level await, as in an asynchronous shell


def test_faults_are_those_of_the_table() -> None:
    assert faults_page.PAGE.read_text() == faults_page.page(), "run python -m tests.docs.faults_page"


def test_ci_recipes_are_those_of_init() -> None:
    page = (PROJECT / "docs" / "ci.md").read_text()
    for recipe in (GITHUB, GITLAB):
        written = recipe.format(install="pip install -e . pytest 'recollect[verify]'", tests="tests")
        assert written.partition("\n")[2] in page


@pytest.mark.parametrize("words", [["--help"], ["engines"], ["verify", "--help"], ["init", "--help"]])
def test_cheap_commands_run(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "recollect", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout
