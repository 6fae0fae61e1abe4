"""Every block of every page is run by a test, or the reason why not is in `tests/docs/blocks.py`."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import ALL, DATA, ELSEWHERE, NIGHTLY, NOT_HERE, PAGES, PROJECT, SHOWN, Block

INSTALLED = re.compile(r"'?(?:recollect|\.)\[([a-z0-9,-]+)\]")
PARSERS: dict[str, Any] = {"yaml": yaml.safe_load, "toml": tomllib.loads, "json": json.loads}
PROGRAM = re.compile(r"^    python (\S+\.py)", re.MULTILINE)


def _known(block: Block) -> bool:
    shown = any(block.beginning.startswith(start) for start in SHOWN.get(block.page, {}))
    installs = block.beginning.startswith("pip install ")  # see test_what_is_to_be_installed_exists
    return shown or installs or block.language in ("python", *DATA) or bool(block.commands)


def test_every_block_is_code_a_command_data_or_listed() -> None:
    assert [(block.page, block.beginning) for block in ALL if not _known(block)] == []


def test_the_list_names_nothing_that_is_gone() -> None:
    everything = [(block.page, block.beginning) for block in ALL]
    commands = [command for block in ALL for command in block.commands]
    for page, shown in SHOWN.items():
        for start in shown:
            assert any(name == page and first.startswith(start) for name, first in everything), (page, start)
    firsts = [first for _, first in everything]
    for start in (*NOT_HERE, *NIGHTLY):
        assert any(each.startswith(start) for each in (*commands, *firsts)), start


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_test_that_is_named_reads_the_page(page: str) -> None:
    test = (PROJECT / ELSEWHERE[page]).read_text()
    assert Path(page).name in test or Path(page).stem in test


@pytest.mark.parametrize(
    "block", [block for block in ALL if block.language in DATA], ids=lambda block: block.page
)
def test_data_can_be_read(block: Block) -> None:
    assert PARSERS[block.language](block.text)


def test_what_is_to_be_installed_exists() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        extra for page in PAGES for group in INSTALLED.findall(page.read_text()) for extra in group.split(",")
    }
    assert len(named) >= 5
    assert named <= extras.keys()


def test_programs_of_the_examples_exist() -> None:
    for page in PAGES:
        for program in PROGRAM.findall(page.read_text()):
            assert (page.parent / program).is_file(), f"{page}: {program}"


def test_the_entry_point_of_the_page_is_ours() -> None:
    (block,) = [block for block in ALL if block.page == "docs/named-stores.md" and block.language == "toml"]
    (group,) = tomllib.loads(block.text)["project"]["entry-points"]
    ours = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert group in ours


def test_what_is_said_not_to_be_here_is_not() -> None:
    """Else it can be run."""
    assert find_spec("langchain_chroma") is None
