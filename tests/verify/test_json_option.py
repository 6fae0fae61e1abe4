"""`--json` means the same in every command, and what was a flag once still works as one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import COMMANDS, build
from recollect.commands.json_output import OPTION, with_value

FILES = ("verify", "explore", "replay", "report", "audit")
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
    assert f"wrote {tmp_path}/new/out.json" in printed.replace("\n", "")
    assert json.loads((tmp_path / "new" / "out.json").read_text())["status"]


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "memory.db").touch()
    command = ["doctor", f"sqlite:///{tmp_path}/memory.db", f"--json={tmp_path}"]
    outcome = CliRunner().invoke(build(command), command)
    assert outcome.exit_code == 2
    assert "cannot write" in outcome.stderr


REFUSED = {
    "verify": (["no_such_module:store", "--engine", "sqlite"], "no_such_module"),
    "explore": (["sqlite", "--policy", "nonsense"], "nonsense"),
    "replay": (["{folder}"], "is not the folder of a cell"),
    "report": (["{folder}"], "history.jsonl"),
    "doctor": (["sqlite:///{folder}/none.db"], "none.db"),
    "audit": (["sqlite:///{folder}/none.db"], "none.db"),
    "erase": (["sqlite:///{folder}/none.db", "s", "--yes"], "none.db"),
    "recall-eval": (["--no-such-option"], "--no-such-option"),
    "engines": (["--no-such-option"], "--no-such-option"),
}


@pytest.mark.parametrize("command", [*FILES, *FLAGS])
@pytest.mark.parametrize("printed", [True, False])
def test_a_command_that_fails_has_a_document_with_the_error(
    command: str, printed: bool, tmp_path: Path
) -> None:
    arguments, expected = REFUSED[command]
    file = tmp_path / "out.json"
    words = [
        command,
        *(word.format(folder=tmp_path) for word in arguments),
        f"--json={'-' if printed else file}",
    ]
    outcome = CliRunner().invoke(build(words), words)
    assert outcome.exit_code in (2, 3), outcome.output
    document = json.loads(outcome.stdout if printed else file.read_text())
    assert document["status"] == "unknown"
    assert expected in document["error"]
    assert expected in outcome.stderr


def test_an_error_of_ours_has_a_document_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("recollect.commands.engines.everything", broken)
    file = tmp_path / "out.json"
    outcome = CliRunner().invoke(build(["engines"]), ["engines", f"--json={file}"])
    assert isinstance(outcome.exception, ZeroDivisionError)
    assert "bug in recollect" in json.loads(file.read_text())["error"]


def test_no_password_is_in_the_document_of_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["verify", "sqlite", "--no-such=redis://x:hunter-2@h/0", f"--json={tmp_path}/out.json"]
    monkeypatch.setattr("sys.argv", ["recollect", *words])
    CliRunner().invoke(build(words), words)
    text = (tmp_path / "out.json").read_text()
    assert "--no-such" in text
    assert "hunter-2" not in text


def test_a_command_that_is_not_installed_says_what_it_needs_whatever_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(module: str) -> object:
        raise ImportError(f"No module named {module!r}", name="msgspec")

    monkeypatch.setattr("recollect.cli.importlib.import_module", missing)
    words = ["verify", "redis", "--engine", "redis@7", "--json", "-"]
    outcome = CliRunner().invoke(build(words), words)
    assert outcome.exit_code == 2
    assert "recollect verify needs msgspec: pip install" in outcome.stderr
    assert "msgspec" in json.loads(outcome.stdout)["error"]


@pytest.mark.parametrize("words", [["verify", "sqlite"], ["report", "."]])
def test_a_page_that_could_not_be_written_is_refused_before_the_run(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.commands.writing.find_spec", lambda name: None)
    words = [*words, "--html", "page.html", "--json"]
    outcome = CliRunner().invoke(build(words), words)
    assert outcome.exit_code == 2
    assert json.loads(outcome.stdout)["error"] == "--html needs Jinja: pip install 'recollect[verify]'"
