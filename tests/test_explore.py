"""`recollect explore`, as its users call it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recollect.cli import build

LINES = "tests.faults.line_files"
FULL = "RECOLLECT_FULL_EXPLORE" in os.environ
"""SQLite's states one level deeper: a minute of two cores."""


def explore(*arguments: str, out: Path, expect: int) -> dict[str, Any]:
    """The JSON document of one exploration, after its exit code was looked at."""
    file = out.with_suffix(".json")
    words = ["explore", *arguments, "--json", str(file), "--budget", "20m"]
    words += [] if "--resume" in arguments else ["--out", str(out)]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == expect, done.output
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"error": ""}
    return {"output": done.output} if "error" in found else found


@pytest.mark.parametrize(
    ("store", "policy", "level", "messages"),
    [
        ("sqlite", "wal-full", 3 if FULL else 2, 2),
        ("sqlite", "delete-extra", 2 if FULL else 1, 2),
        ("redis", "aof-always", 3, 6),
        ("postgres", "default", 1, 3),
    ],
)
def test_our_stores_lose_nothing_in_any_state(
    store: str, policy: str, level: int, messages: int, tmp_path: Path
) -> None:
    arguments = (store, "--policy", policy, "--level", str(level), "--messages", str(messages))
    for found in explore(*arguments, out=tmp_path / "out", expect=0)["explorations"]:
        assert found["violated"] == found["documented"] == 0
        assert found["tried"] == found["states"] == found["held"] + found["refused"]
        assert found["states"] > 5


WAITING = ("--engine", "valkey", "--policy", "aof-everysec", "--messages", "6")
"""An engine whose WAITAOF answers before it has fsynced."""


def test_a_store_that_waits_for_everysec_loses_nothing_in_any_state(tmp_path: Path) -> None:
    arguments = ("recollect.verify.builtin:redis_fsynced", *WAITING, "--level", "3")
    for found in explore(*arguments, out=tmp_path / "out", expect=0)["explorations"]:
        assert found["violated"] == found["documented"] == 0
        assert found["tried"] == found["states"] == found["held"] + found["refused"]
        assert found["held"] > 5


def test_a_store_that_claims_more_than_its_engine_gives_is_caught(tmp_path: Path) -> None:
    arguments = ("tests.faults.early_answers:believes_waitaof", *WAITING, "--level", "1")
    for found in explore(*arguments, out=tmp_path / "out", expect=1)["explorations"]:
        assert found["violated"] > 0


def test_a_documented_loss_is_shown_and_is_no_violation(tmp_path: Path) -> None:
    arguments = ("sqlite", "--policy", "wal-normal", "--level", "1", "--messages", "6", "--mode", "ext4")
    [found] = explore(*arguments, out=tmp_path / "out", expect=0)["explorations"]
    assert found["documented"] > 0
    assert "memory.db-wal" in " ".join(found["first_bad"]["unsynced"])
    image = Path(found["first_bad"]["image"])
    assert (image / "memory.db").exists()
    assert str(image) in found["first_bad"]["open"]


def test_a_store_that_acknowledges_before_it_syncs_is_caught(tmp_path: Path) -> None:
    arguments = (f"{LINES}:hasty", "--engine", "sqlite", "--level", "1", "--messages", "4")
    for found in explore(*arguments, out=tmp_path / "out", expect=1)["explorations"]:
        assert found["violated"] > 0
        first = found["first_bad"]
        assert "turn" in first["acknowledged"]
        assert any("session-0.lines" in line for line in first["unsynced"])


def _tells_the_same(page: str) -> None:
    """The page of `--html`: counted, and the first bad state in words."""
    assert "crash states violated</h1>" in page
    assert "<h3>The first bad state: " in page
    assert "<li>the client asks to append turn 1, message 1 of session-1</li>" in page
    assert "What the power loss left: all unsynced lost" in page
    assert "--look ext4" in page
    assert "<script" not in page


def test_the_story_and_the_disk_of_a_bad_state(tmp_path: Path) -> None:
    """As a person reads it, and with the command that reads the store again on that disk."""
    words = [
        "explore",
        f"{LINES}:hasty",
        "--engine",
        "sqlite",
        "--level",
        "1",
        "--messages",
        "4",
        "--mode",
        "ext4",
    ]
    page = tmp_path / "new" / "page.html"
    done = CliRunner().invoke(build(words), [*words, "--out", str(tmp_path / "out"), "--html", str(page)])
    assert done.exit_code == 1, done.output
    text = done.output
    _tells_the_same(page.read_text())
    for line in (
        "Acknowledged last: turn 0, message 0 of session-0",
        "  the client asks to append turn 1, message 1 of session-1",
        "  power loss, before ",
        "  session-0.lines: 1 write of ",
        "the first at 0, made before the acknowledgement",
        "What the power loss left: all unsynced lost",
        f"The disk as it was left: {tmp_path / 'out' / 'crash-image-ext4'}",
    ):
        assert line in text
    [command] = [line.split() for line in text.splitlines() if "--look" in line]
    looked = CliRunner().invoke(build(command[1:]), command[1:])
    assert looked.exit_code == 0, looked.output
    assert looked.output.splitlines() == ["session-0: empty", "session-1: empty"]


def test_a_store_that_forgets_the_folder_is_caught_in_strict_only(tmp_path: Path) -> None:
    arguments = (f"{LINES}:forgetful", "--engine", "sqlite", "--level", "1", "--messages", "4")
    ext4, strict = explore(*arguments, out=tmp_path / "out", expect=1)["explorations"]
    assert ext4["violated"] == 0
    assert strict["violated"] > 0


def test_a_store_that_syncs_everything_holds(tmp_path: Path) -> None:
    arguments = (f"{LINES}:honest", "--engine", "sqlite", "--level", "1", "--messages", "4")
    for found in explore(*arguments, out=tmp_path / "out", expect=0)["explorations"]:
        assert found["violated"] == 0


def test_what_leaves_a_declared_window_is_not_lost(tmp_path: Path) -> None:
    """Six messages over two sessions, of which each keeps two."""
    for store, code in (("windowed", 0), ("windowed_by_one", 1)):
        arguments = (f"{LINES}:{store}", "--engine", "sqlite", "--level", "1", "--messages", "6")
        for found in explore(*arguments, out=tmp_path / store, expect=code)["explorations"]:
            assert (found["violated"] > 0) == (code == 1)


def test_no_state_knows_of_another(tmp_path: Path) -> None:
    """What a store keeps in its process is gone with the state that it was read from."""
    arguments = (f"{LINES}:keeping", "--engine", "sqlite", "--level", "1", "--messages", "4")
    for found in explore(*arguments, out=tmp_path / "out", expect=0)["explorations"]:
        assert found["held"] == found["states"] > 5


def test_what_a_fresh_process_judges_differently_is_unknown_and_a_bug_of_ours(tmp_path: Path) -> None:
    arguments = (f"{LINES}:moody", "--engine", "sqlite", "--level", "1", "--messages", "4", "--mode", "ext4")
    [found] = explore(*arguments, out=tmp_path / "out", expect=3)["explorations"]
    assert found["violated"] == 0
    assert found["unsure"] > 0
    [why] = found["disagreements"]
    assert "silent-reset" in why
    assert "held" in why
    assert "bug in recollect" in why
    assert found["first_bad"] is None


OPENING = "tests.faults.opening_rewrites"
SMALL = ("--level", "1", "--messages", "2", "--mode", "ext4", "--depth", "2")


@pytest.mark.parametrize(
    ("store", "twin", "engine", "file"),
    [
        ("in_place", "aside", ("--engine", "sqlite"), "session-0.lines"),
        ("list_in_steps", "list_at_once", ("--engine", "redis", "--policy", "aof-always"), "appendonlydir"),
    ],
)
def test_a_crash_during_recovery(
    store: str, twin: str, engine: tuple[str, ...], file: str, tmp_path: Path
) -> None:
    """A store that rewrites its data when it is opened loses nothing in one crash; in two, unless it does it aside."""
    found = explore(f"{OPENING}:{store}", *engine, *SMALL, out=tmp_path / "out", expect=1)
    first, second = found["explorations"]
    assert (first["depth"], first["violated"]) == (1, 0)
    assert (second["depth"], second["violated"] > 0) == (2, True)
    bad = second["first_bad"]
    assert any("first crash" in call for call in bad["calls"])
    assert any(file in call for call in (*bad["calls"], bad["next_call"]))
    looked = CliRunner().invoke(build(["explore"]), bad["look"].split()[1:])
    assert looked.exit_code == 0, looked.output
    assert ": empty" in looked.output
    for held in explore(f"{OPENING}:{twin}", *engine, *SMALL, out=tmp_path / "twin", expect=0)[
        "explorations"
    ]:
        assert held["tried"] == held["states"] == held["held"] > 2


def test_a_budget_that_ends_during_recoveries_says_how_far_it_came(tmp_path: Path) -> None:
    store = f"{OPENING}:in_place"
    explore(store, "--engine", "sqlite", *SMALL[:-2], out=tmp_path / "out", expect=0)
    words = ["explore", store, *SMALL, "--resume", str(tmp_path / "out"), "--budget", "0.001s"]
    first = CliRunner().invoke(build(words), words)
    assert first.exit_code == 0, first.output
    assert "second crash states judged: 0 violated" in first.output
    again = first.output.rpartition("Go on with: ")[2].split()
    assert again[-2:] == ["--depth", "2"]
    [_, second] = explore(*again[2:], out=tmp_path / "out", expect=1)["explorations"]
    assert second["tried"] == second["states"] > second["violated"] > 0
    [_, third] = explore(*again[2:], out=tmp_path / "out", expect=1)["explorations"]
    assert (third["states"], third["violated"]) == (second["states"], second["violated"])
    assert third["first_bad"]["calls"]


def test_what_cannot_be_seen_is_not_concluded(tmp_path: Path) -> None:
    arguments = (f"{LINES}:hidden", "--engine", "sqlite", "--messages", "2")
    assert "the disk recorder was blind" in explore(*arguments, out=tmp_path / "out", expect=3)["output"]


def test_going_on_with_a_run(tmp_path: Path) -> None:
    arguments = ("sqlite", "--level", "1", "--messages", "2", "--mode", "strict")
    [first] = explore(*arguments, out=tmp_path / "out", expect=0)["explorations"]
    again = ("sqlite", "--level", "2", "--mode", "strict", "--resume", str(tmp_path / "out"))
    [second] = explore(*again, out=tmp_path / "out", expect=0)["explorations"]
    assert second["states"] > first["states"]
    assert second["held"] == second["states"]


def test_a_budget_that_ends_says_how_far_it_came(tmp_path: Path) -> None:
    words = ["explore", "sqlite", "--level", "2", "--messages", "2", "--mode", "ext4", "--budget", "0.001s"]
    first = CliRunner().invoke(build(words), [*words, "--out", str(tmp_path / "out")])
    assert "The budget ended. States were looked for at the first" in first.output
    again = first.output.rpartition("Go on with: ")[2].split()
    assert again[:2] == ["recollect", "explore"]
    second = CliRunner().invoke(build(again[1:]), [*again[1:], "--budget", "20m"])
    assert second.exit_code == 0, second.output
    assert "The budget ended" not in second.output
    [found] = explore(*again[2:], out=tmp_path / "out", expect=0)["explorations"]
    assert found["tried"] == found["states"] == found["held"]
    assert found["searched"] == found["records"]


def test_runs_are_not_mixed_up(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    explore("sqlite", "--level", "1", "--messages", "2", "--mode", "ext4", out=folder, expect=0)
    folder.with_suffix(".json").unlink()
    assert "not of redis" in explore("redis", "--resume", str(folder), out=folder, expect=2)["output"]
    assert "has a recording" in explore("sqlite", out=folder, expect=2)["output"]
    missing = ("sqlite", "--resume", str(tmp_path / "nowhere"))
    assert "no recording" in explore(*missing, out=folder, expect=2)["output"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing", "--level", "1"), "unknown target 'nothing'"),
        (("sqlite", "--level", "4"), "1, 2 or 3"),
        (("sqlite", "--mode", "zfs"), "ext4 or strict"),
        (("sqlite", "--policy", "wal"), "unknown policy"),
    ],
)
def test_bad_requests(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    assert says in " ".join(explore(*arguments, out=tmp_path / "out", expect=2)["output"].split())


@pytest.mark.parametrize(
    ("store", "expect"),
    [
        (("tests.planted.whole_list_overwritten:factory", "--engine", "redis", "--policy", "aof-always"), 0),
        ((f"{LINES}:whole_files", "--engine", "sqlite"), 0),
        ((f"{LINES}:written_over", "--engine", "sqlite"), 1),
    ],
)
def test_a_store_that_saves_whole_lists_is_given_them_whole(
    store: tuple[str, ...], expect: int, tmp_path: Path
) -> None:
    """Its callers load, add and save: given the new turn alone, it would lose the others without any power loss."""
    arguments = (*store, "--level", "1", "--messages", "6")
    for found in explore(*arguments, out=tmp_path / "out", expect=expect)["explorations"]:
        assert (found["violated"] > 0) == (expect == 1)
        assert found["documented"] == 0
