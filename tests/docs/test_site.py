"""The documentation site (`make docs`): every page is in its menu, and its links lead somewhere."""

import importlib
import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from tools import docs

PROJECT = Path(__file__).parent.parent.parent


def _menu(items: Any) -> list[str]:
    if isinstance(items, str):
        return [items]
    inner = items.values() if isinstance(items, dict) else items
    return [page for item in inner for page in _menu(item)]


def test_the_menu_has_pages_that_exist_each_once() -> None:
    """Whether it has all of them is for `make docs`, which names those that are missing."""
    menu = _menu(yaml.safe_load((PROJECT / "mkdocs.yml").read_text())["nav"])
    assert len(menu) == len(set(menu))
    assert set(menu) <= {str(place) for place in docs.pages().values()}


def test_links_of_the_site_lead_somewhere(tmp_path: Path) -> None:
    docs.stage(tmp_path)
    for page in tmp_path.rglob("*.md"):
        for _, _, link in docs.LINK.findall(page.read_text()):
            file = link.partition("#")[0]
            if file and ":" not in file:
                assert (page.parent / file).resolve().is_file(), (
                    f"{page.relative_to(tmp_path)} links to {link}"
                )


def test_links_between_the_root_and_docs_are_changed() -> None:
    page = PurePosixPath("docs/stores/sqlite.md")
    text = "[a](../../README.md#x) [b](../library.md) [c](../../examples/redis-chat) [d](https://x.org)"
    assert docs.rewritten(text, page) == "[a](../index.md#x) [b](../library.md) c [d](https://x.org)"


def test_a_hash_at_the_start_of_a_line_is_a_heading_on_purpose() -> None:
    """mkdocs makes a heading of `#2665` too, where other readers of Markdown do not."""
    for page in docs.pages():
        prose = re.sub(r"^ *```.*?^ *```", "", (PROJECT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        assert not re.findall(r"^#+[^# \n].*", prose, re.MULTILINE), page


def test_no_page_fetches_a_script(tmp_path: Path) -> None:
    (tmp_path / "stores").mkdir()
    for place, address in (
        ("a.html", "assets/file-worker.js"),
        ("stores/b.html", "../assets/file-worker.js"),
    ):
        page = tmp_path / place
        page.write_text(f'<script src="{docs.FETCHED}"></script>')
        docs.make_local(tmp_path)
        assert page.read_text() == f'<script src="{address}"></script>'
    assert (PROJECT / "docs" / "assets" / "file-worker.js").is_file()


def test_the_page_of_losses_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROJECT / "bench")
    losses = importlib.import_module("losses")
    kept = json.loads(losses.RESULTS.read_text())
    assert losses.PAGE.read_text() == losses.page(kept), "run python bench/losses.py --page"
    assert not re.search(r"\| (unknown|skipped)", losses.page(kept))


@pytest.mark.parametrize(
    ("figures", "short"),
    [
        ("0 of 276", "nothing"),
        ("203 of 203 (silent-reset)", "everything"),
        ("28 of 351 (lost-tail, 0.9 s)", "28 of 351"),
        ("14 of 54 (lost-tail, 0.1 s) **violated**", "**14 of 54, violated**"),
        ("refuses-to-start", "refuses-to-start"),
    ],
)
def test_a_loss_at_a_glance(monkeypatch: pytest.MonkeyPatch, figures: str, short: str) -> None:
    monkeypatch.syspath_prepend(PROJECT / "bench")
    assert importlib.import_module("losses").shortly(figures) == short
