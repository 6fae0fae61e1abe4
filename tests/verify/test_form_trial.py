"""A store that does not say what its messages are is tried before the run, and the report says what it was given."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import build
from recollect.verify.matrix.selection import VerifyRequest
from recollect.verify.matrix.target_probe import abilities_of
from recollect.verify.target import form_trial
from recollect.verify.target.interface_choice import form_in

STORES = "tests.verify.untyped_stores"


@pytest.mark.parametrize(
    ("store", "form"),
    [
        ("Rows", "mappings"),
        ("AnyJson", "mappings"),
        ("Listed", "mappings"),
        ("Attributes", "recollect.Message"),
        ("Lines", "text"),
        ("Refusing", "recollect.Message"),
        ("Hanging", "recollect.Message"),
        ("Typed", ""),
        ("OneByOne", "mappings"),
        ("OneFile", "mappings"),
    ],
)
def test_it_is_given_what_it_takes(store: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if store == "Hanging":
        monkeypatch.setattr(form_trial, "ANSWER_S", 0.2)
    target = f"{STORES}:{store}"
    able = abilities_of(VerifyRequest(targets=(target,), engine="sqlite"), target)
    assert form_in(able) == form
    assert ("batches" in able) is (store != "OneByOne")
    assert ("content:call" in able) is (form != "text"), (
        "what it is given decides what it can be asked to keep"
    )


def test_the_run_gives_it_the_same_and_says_so(tmp_path: Path) -> None:
    file, junit, page = (tmp_path / name for name in ("report.json", "report.xml", "report.html"))
    words = ["verify", f"{STORES}:Rows", "--engine", "sqlite", "--policy", "wal-full", "--fault", "restart"]
    words += ["--workload", "turns", "--out", str(tmp_path / "run"), "--json", str(file)]
    words += ["--junit", str(junit), "--html", str(page)]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == 0, done.output
    (cell,) = json.loads(file.read_text())["cells"]
    assert (cell["status"], cell["form"]) == ("held", "mappings")
    assert "Rows (given mappings) on sqlite" in done.output
    assert 'name="given" value="mappings"' in junit.read_text()
    assert "given mappings" in page.read_text()


def test_orders_of_events_are_tried_with_it_too(tmp_path: Path) -> None:
    words = ["explore", f"{STORES}:Rows", "--engine", "sqlite", "--interleavings", "--program", "a | r"]
    words += ["--budget", "5s", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(build(words), words)
    assert "not JSON serializable" not in done.output
    assert done.exit_code == 0, done.output


def test_crash_states_are_explored_with_it_too(tmp_path: Path) -> None:
    words = ["explore", f"{STORES}:Rows", "--engine", "sqlite", "--policy", "wal-full", "--messages", "2"]
    words += ["--level", "1", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == 0, done.output
