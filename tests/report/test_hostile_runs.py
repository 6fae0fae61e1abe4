"""Saved runs that mean harm: reports show them as text, refuse them in a sentence, and read nothing but them."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as Xml
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recollect.cli import build

HISTORIES = sorted((Path(__file__).parents[1] / "histories" / "checkers").glob("*.jsonl"))
HOSTILE = "</script></title><img src=x onerror=alert(1)>\"'`{{7*7}}[red]\x1b[2J\x1b]0;owned\x07\u202e"
NAMES = {"kind", "operation", "is", "history", "fault", "policy", "engine", "workload", "traits", "refresh"}
"""Fields whose values are a set of names: others are refused."""


def hostile(value: Any, field: str = "") -> Any:
    """The same with something hostile in every text."""
    if isinstance(value, str):
        return value if field in NAMES else HOSTILE + value
    if isinstance(value, list):
        return [hostile(item, field) for item in value]
    return {key: hostile(item, key) for key, item in value.items()} if isinstance(value, dict) else value


def report(*words: object) -> Result:
    done = CliRunner().invoke(build(["report"]), ["report", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    unprintable = [one for one in done.output if not one.isprintable() and one != "\n"]
    assert not unprintable
    return done


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [tag, *(name for name, _ in attrs if name.startswith("on"))]


@pytest.mark.parametrize("history", HISTORIES[::2], ids=lambda path: path.stem)
def test_hostile_texts_stay_texts(tmp_path: Path, history: Path) -> None:
    lines = [json.dumps(hostile(json.loads(line))) for line in history.read_text().splitlines()]
    (tmp_path / "h.jsonl").write_text("\n".join(lines) + "\n")
    page, junit = tmp_path / "page.html", tmp_path / "junit.xml"
    done = report(tmp_path / "h.jsonl", "--verbose", "--html", page, "--junit", junit)
    assert done.exit_code in (0, 1), done.output
    tags = Tags()
    tags.feed(page.read_text())
    assert "img" not in tags.found
    assert "onerror" not in tags.found
    assert "\x1b" not in page.read_text()
    Xml.parse(junit)


REFUSED = {
    "names of nobody": lambda line: json.dumps(hostile({**json.loads(line), "kind": HOSTILE})),
    "nested without end": lambda line: '{"index":0,"value":' + "[" * 200_000 + "]" * 200_000 + "}",
    "a number of a million digits": lambda line: '{"index":' + "9" * 1_000_000 + "}",
    "half a line": lambda line: line[: len(line) // 2] + "\n" + line,
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_is_no_history_is_refused(tmp_path: Path, change: Any) -> None:
    head, first, *rest = HISTORIES[0].read_text().splitlines()
    (tmp_path / "h.jsonl").write_text("\n".join([head, change(first), *rest]) + "\n")
    done = report(tmp_path / "h.jsonl")
    assert done.exit_code == 2
    assert len(done.output) < 2_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of one cell, and beside it somebody's history that is no part of it."""
    for folder in ("run/cell", "secret"):
        (tmp_path / folder).mkdir(parents=True)
        shutil.copy(HISTORIES[0], tmp_path / folder / "history.jsonl")
    return tmp_path / "run"


def summary(run: Path, folder: str, **more: object) -> None:
    scenario = {"target": "t", "engine": "redis", "policy": "aof-always", "fault": "restart"}
    cell = {"scenario": scenario, "verdict": {"status": "held"}, "folder": folder, **more}
    (run / "results.json").write_text(json.dumps({"seed": 1, "results": [cell]}))


@pytest.mark.parametrize("folder", ["../secret", "{}/secret", "cell/../../secret", "..", "\x00"])
def test_a_run_reads_only_its_own_cells(run: Path, folder: str) -> None:
    summary(run, folder.format(run.parent))
    done = report(run, "--html", run / "page.html")
    assert done.exit_code == 2, done.output
    assert "folder" in done.output


def test_a_history_elsewhere_is_not_read(run: Path) -> None:
    summary(run, "", history=str(run.parent / "secret" / "history.jsonl"))
    assert report(run).exit_code == 2


def test_a_link_out_of_the_run_is_not_followed(run: Path) -> None:
    (run / "away").symlink_to(run.parent / "secret")
    summary(run, "away")
    assert report(run).exit_code == 2


def test_its_own_cells_are_read(run: Path) -> None:
    summary(run, "cell")
    done = report(run, "--html", run / "page.html")
    assert done.exit_code in (0, 1), done.output


@pytest.mark.parametrize("text", ["", "[]", '{"seed":' + "[" * 200_000, '{"seed": 1, "results": [{}]}'])
def test_a_summary_that_is_none_is_refused(run: Path, text: str) -> None:
    (run / "results.json").write_text(text)
    done = report(run)
    assert done.exit_code == 2
    assert "Traceback" not in done.output
