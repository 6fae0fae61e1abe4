"""`--json` means the same in every command, and what was a flag once still works as one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import COMMANDS, build
from recollect.commands.json_output import OPTION, with_value

FILES = ("verify", "explore", "replay", "report")
FLAGS = ("doctor", "engines", "erase", "recall-eval")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["--json"], ["--json=-"]),
        (["--json", "-"], ["--json", "-"]),
        (["--json", "out.json"], ["--json", "out.json"]),
        (["--json=out"], ["--json=out"]),
        (["--json", "--seed", "1"], ["--json=-", "--seed", "1"]),
        (["--", "--json"], ["--", "--json"]),
    ],
)
@pytest.mark.parametrize("once_a_flag", [True, False])
def test_with_and_without_a_file(given: list[str], read: list[str], once_a_flag: bool) -> None:
    assert with_value(["a", *given], once_a_flag=once_a_flag) == ["a", *read]


def test_only_where_it_was_never_a_flag_any_next_word_is_the_file() -> None:
    words = ["--json", "redis://localhost"]
    assert with_value(words, once_a_flag=True) == ["--json=-", "redis://localhost"]
    assert with_value(words, once_a_flag=False) == words


@pytest.mark.parametrize("command", [*FILES, *FLAGS])
def test_every_command_with_results_has_it_in_one_form(command: str) -> None:
    shown = CliRunner().invoke(build([command]), [command, "--help"]).output
    assert "--json FILE" in shown


def test_no_command_has_it_in_another_form() -> None:
    for command in COMMANDS:
        shown = CliRunner().invoke(build([command]), [command, "--help"]).output
        assert (OPTION in shown) == ("--json FILE" in shown), command


def doctored(tmp_path: Path, *words: str) -> str:
    (tmp_path / "memory.db").touch()
    command = [
        "doctor",
        *(word.format(url=f"sqlite:///{tmp_path}/memory.db", folder=tmp_path) for word in words),
    ]
    return CliRunner().invoke(build(command), command).stdout


@pytest.mark.parametrize(
    "words", [("{url}", "--json"), ("--json", "{url}"), ("{url}", "--json", "-"), ("--json=-", "{url}")]
)
def test_it_is_printed_instead_of_the_text(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert json.loads(doctored(tmp_path, *words))["status"]


@pytest.mark.parametrize("words", [("--json", "{folder}/new/out.json"), ("--json={folder}/new/out.json",)])
def test_it_is_written_beside_the_text(tmp_path: Path, words: tuple[str, ...]) -> None:
    printed = doctored(tmp_path, "{url}", *words)
    assert "Nothing was changed." in printed
    assert json.loads((tmp_path / "new" / "out.json").read_text())["status"]


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "memory.db").touch()
    command = ["doctor", f"sqlite:///{tmp_path}/memory.db", f"--json={tmp_path}"]
    outcome = CliRunner().invoke(build(command), command)
    assert outcome.exit_code == 2
    assert "cannot write" in outcome.stderr
