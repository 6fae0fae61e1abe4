"""The terminal: rows that are told apart, notes that are shown, commands that can be pasted."""

import io

import pytest
from rich.console import Console

from recollect.verify.judging.verdict import Anomaly, Status, Verdict, WitnessEvents
from recollect.verify.matrix.results import Result, Results, exit_code
from recollect.verify.report import terminal
from recollect.verify.running.scenario import Scenario


def result(target: str, status: Status, *, fault: str = "kill-engine", **more: object) -> Result:
    scenario = Scenario(target=target, engine="redis", policy="rdb", fault=fault)
    lost = (
        (Anomaly("lost-tail", 1, True, WitnessEvents(), "[bold]one is gone"),) if status == "violated" else ()
    )
    reason = "only 2 operations" if status == "unknown" else None
    verdict = Verdict(status=status, acked=7, anomalies=lost, reason=reason)
    return Result(scenario=scenario, verdict=verdict, **more)  # type: ignore[arg-type]


def shown(*results: Result, folder: str = "runs/x", verbose: bool = False) -> str:
    file = io.StringIO()
    terminal.show(Console(file=file, width=200), Results(folder=folder, results=results), verbose=verbose)
    return file.getvalue()


def test_two_factories_of_one_name_have_a_table_each() -> None:
    text = shown(
        result("app.redis:make", "held"), result("app.sql:make", "held"), result("app.sql:other", "held")
    )
    for target in ("app.redis:make", "app.sql:make", "app.sql:other"):
        assert f"\n{target}\n" in f"\n{text}"


def test_a_cell_of_merged_shards_has_its_own_folder_in_its_command() -> None:
    merged = shown(result("a:make", "violated", folder="shard 1/000-a"), folder="")
    assert "recollect replay 'shard 1/000-a'" in merged
    assert "[bold]one is gone" in merged
    assert "recollect replay runs/x/000-a" in shown(result("a:make", "violated", folder="000-a"))


def test_what_hangs_is_named() -> None:
    assert "note: a read took longer than 15 s [a:make kill-engine]" in shown(
        result("a:make", "unknown", notes=("a read took longer than 15 s",)), verbose=True
    )


def test_without_a_cell_that_ran_there_is_no_empty_table() -> None:
    assert "fault" not in shown(result("a:make", "skipped")).partition("skipped")[0]


@pytest.mark.parametrize(
    ("fault", "require", "code"),
    [
        ("kill-engine", None, 0),
        ("kill-engine", "written", 1),
        ("restart", "written", 1),
        ("power-loss", "written", 0),
        ("power-loss", "fsynced", 1),
        ("fsync-error", "fsynced", 1),
        ("evict", "fsynced", 0),
    ],
)
def test_a_documented_loss_that_a_durable_message_survives_fails_what_is_required(
    fault: str, require: str | None, code: int
) -> None:
    assert exit_code(Results(results=(result("a:make", "documented-loss", fault=fault),)), require) == code
