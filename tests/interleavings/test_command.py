"""`recollect explore --interleavings`, as its users call it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recollect.cli import build
from recollect.verify.host.waiting import wait_until

STORES = "tests.interleavings.planted.redis_tasks"


def explore(*arguments: str, out: Path, expect: int) -> tuple[dict[str, Any], str]:
    """The JSON document and what was printed, after the exit code was looked at."""
    file = out.with_suffix(".json")
    words = ["explore", *arguments, "--interleavings", "--json", str(file), "--out", str(out)]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == expect, done.output
    found: dict[str, Any] = json.loads(file.read_text()).get("interleavings", [{}])[0]
    return found, done.output


def test_a_lost_message_is_told_drawn_and_replayed(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = (f"{STORES}:OneValue", "--engine", "redis", "--how", "tasks")
    found, printed = explore(*asked, "--html", str(page), out=tmp_path / "out", expect=1)
    failure = found["failure"]
    assert (found["status"], failure["program"], failure["confirmed"]) == ("violated", "a | a", "3 of 3")
    assert failure["sentence"].endswith("m1 is gone.")
    assert "A read nothing" in failure["sentence"]
    assert "GET chat:s0: reads nothing" in printed
    assert "<svg" in page.read_text()
    assert Path(failure["history"]).is_file()
    words = re.findall(r"'[^']*'|\S+", failure["replay"])[2:]
    words = [word.strip("'") for word in words if word != "--interleavings"]
    again, shown = explore(*words, out=tmp_path / "again", expect=1)
    assert again["failure"]["names"] == failure["names"]
    assert again["failure"]["schedule"] == failure["schedule"]
    assert "m1 is gone" in shown


def test_a_store_of_one_process_is_not_judged_by_another(tmp_path: Path) -> None:
    asked = ("tests.verify.untyped_stores:OfOneProcess", "--engine", "sqlite", "--program", "a")
    found, printed = explore(*asked, out=tmp_path / "out", expect=2)
    assert found["status"] == "unknown"
    assert "claims one process at a time" in printed


def test_a_store_of_one_thread_is_not_accused_of_it_unless_threads_are_asked_for(tmp_path: Path) -> None:
    asked = (
        "tests.verify.untyped_stores:OfOneThread",
        "--engine",
        "sqlite",
        "--program",
        "a",
        "--program",
        "a | r",
    )
    found, printed = explore(*asked, out=tmp_path / "out", expect=0)
    assert (found["how"], found["status"]) == ("processes", "held")
    assert "threads: not explored, because only the thread that opened the store may use it" in printed
    found, _ = explore(*asked, "--how", "threads", out=tmp_path / "threads", expect=1)
    assert found["failure"]["names"] == ["raised"]


def test_the_folder_of_what_failed_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = (f"{STORES}:OneValue", "--engine", "redis", "--how", "tasks", "--program", "a | a")
    explore(*asked, out=tmp_path / "out", expect=1)
    monkeypatch.chdir(tmp_path)  # the store is found from here, too
    words = ["replay", str(tmp_path / "out" / "tasks"), "--times", "2"]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == 1, done.output
    assert "seen in 2 of 2 runs" in done.output
    assert "GET chat:s0: reads nothing" in done.output


def test_a_schedule_that_somebody_else_saved_is_not_run(tmp_path: Path) -> None:
    asked = (f"{STORES}:OneValue", "--engine", "redis", "--how", "tasks", "--program", "a | a")
    explore(*asked, out=tmp_path / "out", expect=1)
    (tmp_path / "out" / "tasks" / "scenario.seal").unlink()
    words = ["replay", str(tmp_path / "out" / "tasks")]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == 2
    assert "--trust" in done.output


def test_one_program_of_a_store_without_a_race_is_tried_to_the_end(tmp_path: Path) -> None:
    asked = (f"{STORES}:OneCommand", "--engine", "redis", "--program", "a | a", "--seconds", "60")
    found, printed = explore(*asked, out=tmp_path / "out", expect=0)
    (program,) = found["programs"]
    assert (found["status"], found["how"]) == ("held", "tasks")
    assert program["exhausted"]
    assert program["coverage"] == "every distinguishable order"
    assert program["diverged"] == 0
    assert "every distinguishable order of 1 program;" in printed


def test_when_it_is_terminated_it_says_how_far_it_came(tmp_path: Path) -> None:
    words = ["explore", f"{STORES}:LockedValue", "--engine", "redis", "--interleavings", "--seconds", "600"]
    out, json_file = tmp_path / "out", tmp_path / "found.json"
    words += ["--how", "tasks", "--how", "processes", "--out", str(out), "--json", str(json_file)]
    with subprocess.Popen(
        [sys.executable, "-m", "recollect", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        wait_until((out / "tasks" / "target.log").exists, 60, "it did not begin")
        running.terminate()
        printed, _ = running.communicate(timeout=60)
    assert running.returncode == 3
    assert "tasks: unknown (it was stopped before the end)" in printed
    assert "Tried: " in printed
    (found,) = json.loads(json_file.read_text())["interleavings"]
    assert found["status"] == "unknown"


def test_a_schedule_that_does_not_fit_says_so(tmp_path: Path) -> None:
    asked = (f"{STORES}:OneCommand", "--engine", "redis", "--how", "tasks", "--program", "a | a")
    _, printed = explore(*asked, "--replay", "CC", out=tmp_path / "out", expect=3)
    assert "the schedule CC does not fit" in printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("redis", "--program", "a | q"), "'q' is not an operation"),
        (("redis", "--how", "fibres"), "--how fibres"),
        (("redis", "--until", "bad-luck"), "--until bad-luck"),
        (("redis", "--replay", "AB"), "--replay needs the one --program"),
        (("redis", "--how", "tasks", "--program", "a", "--replay", "a?"), "not a schedule"),
        (
            ("redis", "--how", "tasks", "--program", "a; a", "--replay", "A"),
            "not one schedule for each program",
        ),
        (("redis", "--how", "tasks", "--program", "a; a"), "is not an operation"),
        (("my.store:make",), "needs --engine"),
        (
            (f"{STORES}:OneCommand", "--engine", "redis", "--program", "s | s"),
            "needs a target with 'whole-list'",
        ),
        ((f"{STORES}:Nothing", "--engine", "redis"), "has no 'Nothing'"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    _, printed = explore(*arguments, out=tmp_path / "out", expect=2)
    assert told in printed


def test_options_of_interleavings_need_interleavings() -> None:
    words = ["explore", "redis", "--program", "a | a"]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == 2
    assert "--program belongs to --interleavings" in done.output
