"""`--require whole-sessions`: all there or all gone, never in part."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from recollect.cli import build
from recollect.verify.matrix.results import Result, too_bad
from recollect.verify.running.scenario import Scenario

from .history_script import Script, save_history


def run(policy: str, fault: str, kept: int, *, after: int = 0) -> Script:
    """Four messages and a fault, of which a read then shows the first `kept`, and `after` that were written later."""
    script = Script(policy=policy, fault=fault)
    for _ in range(4):
        script.append(1)
    script.read(2, 0, 1, 2, 3)
    script.crash(fault)
    for _ in range(after):
        script.append(1)
    script.read(2, *range(kept), *range(4, 4 + after))
    return script


@pytest.mark.parametrize(
    ("policy", "fault", "kept", "after", "partly", "status"),
    [
        ("aof-everysec", "power-loss", 2, 0, 1, "documented-loss"),
        ("aof-everysec", "power-loss", 2, 3, 1, "documented-loss"),
        ("aof-everysec", "power-loss", 4, 0, 0, "held"),
        ("rdb", "kill-engine", 0, 0, 0, "documented-loss"),
        ("rdb", "kill-engine", 0, 3, 0, "documented-loss"),
    ],
)
def test_a_session_is_whole_or_not(
    policy: str, fault: str, kept: int, after: int, partly: int, status: str
) -> None:
    """The correct twins: nothing lost, or everything that had been written before."""
    verdict = run(policy, fault, kept, after=after).verdict()
    assert (verdict.partly_lost_sessions, verdict.status) == (partly, status)
    cell = Result(scenario=Scenario(target="t", engine="redis", policy=policy, fault=fault), verdict=verdict)
    assert too_bad(cell, "whole-sessions", False) is (partly > 0)


def test_only_the_sessions_that_lost_something_are_counted() -> None:
    script = Script(policy="aof-everysec", fault="power-loss")
    for session in ("whole", "half", "gone"):
        script.append(1, session)
        script.append(1, session)
    script.crash("power-loss")
    script.read(2, 0, 1, session="whole")
    script.read(2, 2, session="half")
    script.read(2, session="gone")
    assert script.verdict().partly_lost_sessions == 1


def test_what_was_never_acknowledged_does_not_hide_that_something_was_kept() -> None:
    script = Script(policy="aof-everysec", fault="power-loss")
    script.append(1, outcome="unknown")
    script.append(1)
    script.append(1)
    script.crash("power-loss")
    script.read(2, 0, 1)
    assert script.verdict().partly_lost_sessions == 1


def test_what_a_clock_let_expire_is_no_part_that_was_lost() -> None:
    script = Script(policy="aof-always", fault="clock-forward")
    script.append(1)
    script.append(1)
    script.inject("clock-forward")
    script.heal("clock-forward")
    script.read(2, 1)
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == ["expired-early"]
    assert verdict.partly_lost_sessions == 0


@pytest.mark.parametrize(("kept", "partly"), [((2,), 1), ((3,), 0), ((), 0)])
def test_eviction_goes_on_while_messages_are_written(kept: tuple[int, ...], partly: int) -> None:
    """All that was there before is gone. What was written meanwhile is a new beginning if nothing later is missing."""
    script = Script(policy="aof-always", fault="evict")
    script.append(1)
    script.append(1)
    script.inject("evict")
    script.append(1)
    script.append(1)
    script.heal("evict")
    script.read(2, *kept)
    verdict = script.verdict()
    assert (verdict.partly_lost_sessions, verdict.status) == (partly, "documented-loss")


@pytest.mark.parametrize(("kept", "code"), [(2, 1), (4, 0)])
def test_the_command_fails_and_names_the_cell(kept: int, code: int, tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    save_history(run("aof-everysec", "power-loss", kept).history(), file)
    words = ["report", str(file), "--require", "whole-sessions"]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == code, done.output
    told = re.search(r"--require whole-sessions: .*power-loss.*: 1 session .* in part", done.output)
    assert (told is not None) is bool(code), done.output


def test_the_figure_is_part_of_the_saved_verdict() -> None:
    verdict = run("aof-everysec", "power-loss", 2).verdict()
    assert msgspec.to_builtins(verdict)["partly_lost_sessions"] == 1
