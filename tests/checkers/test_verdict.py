"""The verdict: anomalies against promises, too little evidence, coverage, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.verify.judging import checkers
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.checkers import ANOMALIES
from recollect.verify.judging.coverage import OF_ORDERS
from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import Element, FaultDetail, HistoryHeader, ReadAsked, WriteAsked
from recollect.verify.report.one_history import main, render

from .history_script import Script, save_history, written


def crashed(
    policy: str, fault: str, *, engine: str = "redis", lost: int = 2, total: int = 4, **header: object
) -> Script:
    """`total` messages, the fault, and a read that lacks the last `lost`; another session is kept."""
    script = Script(engine=engine, policy=policy, fault=fault, **header)
    script.append(1, "other")
    for _ in range(total):
        script.append(1)
    script.read(2, *range(1, total + 1))
    script.crash(fault)
    script.read(2, *range(1, total + 1 - lost))
    script.read(2, 0, session="other")
    return script


def test_loss_inside_the_promise_is_documented_with_its_window() -> None:
    verdict = crashed("aof-everysec", "power-loss").verdict()
    assert verdict.status == "documented-loss"
    assert verdict.reason is None
    assert verdict.promised_window_s == 2.0
    assert verdict.loss_window_s is not None
    assert verdict.loss_window_s <= 2.0
    assert "one second" in verdict.promise
    assert "aof.c" in verdict.promise_source


def test_loss_that_reaches_back_too_far_violates_the_promise() -> None:
    script = Script(policy="aof-everysec", fault="power-loss")
    script.append(1)
    script.append(1)
    script.wait(2.5)
    script.crash("power-loss")
    script.read(2, 0)
    verdict = script.verdict()
    assert verdict.status == "violated"
    assert verdict.reason is not None
    assert "reaches back 2.51" in verdict.reason


def test_loss_where_nothing_may_be_lost_is_a_violation() -> None:
    verdict = crashed("aof-always", "power-loss").verdict()
    assert verdict.status == "violated"
    assert verdict.reason is not None
    assert verdict.reason.startswith("lost-tail is not covered by the engine's promise")


@pytest.mark.parametrize(
    ("fault", "claim", "status"),
    [
        ("power-loss", "fsynced", "violated"),
        ("power-loss", "written", "documented-loss"),
        ("slow-fsync", "written", "violated"),
        ("slow-fsync", "buffered", "documented-loss"),
        ("slow-fsync", "a word of the store's own", "documented-loss"),
    ],
)
def test_what_was_acknowledged_as_on_the_disk_must_be_there(fault: str, claim: str, status: str) -> None:
    """Whatever the engine's policy allows: the store has promised more."""
    script = Script(policy="aof-everysec", fault=fault)
    script.append(1, claim="buffered")
    script.append(1, claim=claim)
    script.crash(fault)
    script.read(2, 0)
    verdict = script.verdict()
    assert verdict.status == status
    if status == "violated":
        assert f"m1 was acknowledged as {claim}, which survives {fault}" in (verdict.reason or "")


def test_a_claim_does_not_answer_for_another_fault() -> None:
    script = Script(policy="aof-always", fault="evict")
    script.append(1, claim="fsynced")
    script.append(1, claim="fsynced")
    script.crash("evict")
    script.read(2, 0)
    assert script.verdict().status == "documented-loss"


def test_another_anomaly_beside_an_allowed_one_is_a_violation() -> None:
    script = crashed("aof-everysec", "power-loss")
    script.read(3, 1, 2, Element(None, text="boo"))
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == ["phantom", "lost-tail"]
    assert verdict.status == "violated"


def test_a_tail_may_be_everything_but_only_inside_the_window() -> None:
    quick = Script(policy="aof-everysec", fault="power-loss")
    quick.append(1)
    quick.crash("power-loss")
    quick.read(2)
    assert (quick.names(), quick.verdict().status) == (["silent-reset"], "documented-loss")
    slow = Script(policy="aof-everysec", fault="power-loss")
    slow.append(1)
    slow.wait(3.0)
    slow.crash("power-loss")
    slow.read(2)
    assert (slow.names(), slow.verdict().status) == (["silent-reset"], "violated")


def test_a_promise_in_turns() -> None:
    one = crashed("delete-full", "power-loss", engine="sqlite", lost=1)
    assert one.verdict().status == "documented-loss"
    two = crashed("delete-full", "power-loss", engine="sqlite", lost=2)
    verdict = two.verdict()
    assert verdict.status == "violated"
    assert verdict.reason is not None
    assert "2 turns lost, and the promise allows 1" in verdict.reason


def test_an_unbounded_promise_has_no_window() -> None:
    script = crashed("wal-normal", "power-loss", engine="sqlite", lost=4)
    script.wait(100.0)
    assert script.verdict().status == "documented-loss"


def test_only_the_fault_may_take_back_what_a_reader_saw() -> None:
    script = Script(policy="aof-everysec", fault="power-loss")
    script.append(1)
    script.append(1, outcome="unknown")
    script.read(2, 0, 1)
    script.crash("power-loss")
    script.read(2, 0)
    assert (script.names(), script.verdict().status) == (["non-monotonic-read"], "documented-loss")
    script.begin(1)
    script.read(2, 0, 2)
    script.read(2, 0)
    assert (script.names(), script.verdict().status) == (["non-monotonic-read"], "violated")


def test_stale_replicas_are_documented() -> None:
    script = Script(policy="default", engine="postgres", fault="replica-lag")
    script.inject("replica-lag")
    script.append(1)
    script.read(2)
    script.read(2, 0)
    script.begin(1)
    script.read(2, 0, 1)
    script.read(2, 0)
    script.ok(1)
    script.heal("replica-lag")
    script.read(2, 0, 1)
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == ["stale-read", "non-monotonic-read"]
    assert verdict.status == "documented-loss"


def test_an_engine_nobody_knows_promises_everything() -> None:
    script = Script(engine="dynamo", policy="default", fault="kill-engine")
    script.append(1)
    script.append(1)
    script.crash()
    script.read(2, 0)
    verdict = script.verdict()
    assert verdict.status == "violated"
    assert "no promise is documented for dynamo" in verdict.promise


def test_nothing_wrong_is_held() -> None:
    verdict = crashed("aof-always", "power-loss", lost=0).verdict()
    assert (verdict.status, verdict.reason, verdict.loss_window_s) == ("held", None, None)
    assert (verdict.acked, verdict.kept, verdict.lost) == (5, 5, 0)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"ok_ops_min": 100}, "only 10 operations succeeded, 100 are needed"),
        ({"fault": "disk-full"}, "the fault disk-full was never injected"),
    ],
)
def test_too_little_evidence_is_unknown(header: dict[str, object], reason: str) -> None:
    fields: dict[str, object] = {"fault": "power-loss", "policy": "aof-always"} | header
    script = Script(**fields)
    script.append(1)
    for _ in range(4):
        script.append(1)
    script.crash("power-loss")
    for _ in range(5):
        script.read(2, 0, 1, 2, 3, 4)
    verdict = script.verdict()
    assert (verdict.status, verdict.reason) == ("unknown", reason)


def test_enough_operations_are_enough() -> None:
    assert crashed("aof-always", "power-loss", lost=0, ok_ops_min=8).verdict().status == "held"
    assert crashed("aof-always", "power-loss", lost=0, ok_ops_min=9).verdict().status == "unknown"


def test_too_few_operations_come_with_the_error_that_the_others_ended_in() -> None:
    script = Script(ok_ops_min=10)
    script.read(2)
    for _ in range(3):
        script.append(1, outcome="unknown")
    said = "only 1 operation succeeded, 10 are needed; the most frequent error: timed out"
    assert script.verdict().reason == said


def test_without_acknowledged_or_read_messages_nothing_is_concluded() -> None:
    silent = Script()
    silent.append(1, outcome="unknown")
    silent.read(2)
    assert silent.verdict().reason == "no write was acknowledged; the most frequent error: timed out"
    unread = Script()
    unread.append(1)
    assert unread.verdict().reason == "no acknowledged message was read back"
    early = Script(fault="power-loss")
    early.append(1)
    early.read(2, 0)
    early.crash("power-loss")
    assert early.verdict().reason == "nothing was read after power-loss"


def test_a_violation_stands_even_on_little_evidence() -> None:
    assert crashed("aof-always", "power-loss", ok_ops_min=100).verdict().status == "violated"


def test_a_cut_off_history_is_never_held() -> None:
    script = crashed("aof-always", "power-loss", lost=0)
    verdict = analyze(script.history(truncated=True))
    assert verdict.status == "unknown"
    assert (verdict.reason or "").startswith("the history ends in the middle")


def test_a_crashed_checker_is_unknown_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(evidence: object, claimed: object) -> list[object]:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(checkers.hole, "check", explode)
    verdict = crashed("aof-always", "power-loss", lost=0).verdict()
    assert verdict.status == "unknown"
    assert verdict.reason == "the checker hole crashed: ZeroDivisionError: boom"


def test_coverage_names_what_could_not_be_seen() -> None:
    plain = Script()
    plain.append(1)
    plain.read(2, 0)
    verdict = plain.verdict()
    told = {gap.split(":")[0] for gap in verdict.not_covered}
    assert told == {
        "refuses-to-start",
        "hidden",
        "cross-session-leak",
        "lost-update",
        "torn-turn",
        "lost-tail",
        "hole",
        "fractured-read",
        "resurrected",
        "expired-early",
        "never-expired",
        "index-divergence",
    }
    assert set(verdict.covered) == set(ANOMALIES) - told - OF_ORDERS


def test_what_was_found_was_covered() -> None:
    """Two accepted with one `expect`, by one process: there was one writer, and a lost update anyway."""
    script = Script()
    script.append(1, expect=0)
    script.append(1, expect=0)
    script.read(2, 0, 1)
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == ["lost-update"]
    assert "lost-update" in verdict.covered
    assert not any(gap.startswith("lost-update") for gap in verdict.not_covered)


def test_turns_of_one_message_cannot_be_torn() -> None:
    verdict = crashed("aof-always", "power-loss", lost=0).verdict()
    assert "torn-turn: no turn had more than one message" in verdict.not_covered
    assert "lost-tail" in verdict.covered


def test_coverage_grows_with_the_history() -> None:
    script = Script()
    script.append(1, count=2, retention_s=60.0)
    script.append(2, "other")
    script.context(2, (ReadAsked(), [0, 1]))
    script.search(2, [0, 1], [0, 1])
    script.count(2, 2)
    script.crash()
    script.read(2, 0, 1)
    script.forget(2, "other")
    script.read(2, session="other")
    verdict = script.verdict()
    assert verdict.not_covered == ()
    assert verdict.covered == tuple(name for name in ANOMALIES if name not in OF_ORDERS)


def test_a_clock_fault_covers_early_expiry_but_not_loss() -> None:
    script = Script()
    script.append(1)
    script.inject("clock-forward", 60.0)
    script.read(2, 0)
    covered = script.verdict().covered
    assert "expired-early" in covered
    assert "never-expired" not in covered
    assert "hole" not in covered


def test_what_the_target_disclaims_is_listed() -> None:
    traits = ("single_writer", "one_process", "no_batches", "at_least_once", "ordered_by_clock")
    script = Script(traits=traits)
    script.append(1)
    script.read(2, 0)
    gaps = script.verdict().not_covered
    for trait in traits:
        assert any(f"({trait})" in gap for gap in gaps)


def test_an_element_counts_once_under_the_first_name_that_fits() -> None:
    script = Script()
    script.append(1)
    script.append(1)
    script.append(1)
    script.append(1, "other")
    script.read(2, 0, 3, 1, 1, 2)  # m3 leaks, m1 is doubled
    script.read(2, 2, 0, 1)  # and m2 stands before m0, and before m1, which has been counted
    assert script.counts() == {"cross-session-leak": 1, "duplicate": 1, "reorder": 1}


# -- the command ------------------------------------------------------------------------------------------


def save(script: Script, tmp_path: Path) -> Path:
    path = tmp_path / "history.jsonl"
    save_history(script.history(), path)
    return path


def test_the_json_document_has_the_stable_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(crashed("aof-everysec", "power-loss", seed=7, target="redis"), tmp_path)
    assert main([str(path), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["recollect"], document["seed"]) == ("0.1.0", 7)
    (cell,) = document["cells"]
    assert {
        "target",
        "engine",
        "engine_version",
        "provider",
        "policy",
        "fault",
        "workload",
        "status",
        "acked",
        "kept",
        "lost",
        "unknown_outcomes",
        "loss_window_s",
        "promise",
        "anomalies",
        "history",
        "replay",
        "reason",
    } <= cell.keys()
    assert (cell["target"], cell["status"], cell["history"]) == ("redis", "documented-loss", str(path))
    (anomaly,) = cell["anomalies"]
    assert (anomaly["name"], anomaly["count"], anomaly["silent"]) == ("lost-tail", 2, True)
    assert anomaly["first"]["session"] == "s"
    assert anomaly["first"]["message"] == "m3"


@pytest.mark.parametrize(
    ("policy", "ok_ops_min", "lost", "code"),
    [("aof-always", 0, 0, 0), ("aof-everysec", 0, 2, 0), ("aof-always", 0, 2, 1), ("aof-always", 99, 0, 3)],
)
def test_exit_codes(tmp_path: Path, policy: str, ok_ops_min: int, lost: int, code: int) -> None:
    path = save(crashed(policy, "power-loss", lost=lost, ok_ops_min=ok_ops_min), tmp_path)
    assert main([str(path), "--json", str(tmp_path / "out.json")]) == code
    assert json.loads((tmp_path / "out.json").read_text())["cells"]


def test_a_malformed_history_exits_with_2_and_its_line(tmp_path: Path) -> None:
    path = save(crashed("aof-always", "power-loss"), tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[3] = b"garbage"
    path.write_bytes(b"\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-m", "recollect.verify.analyze", str(path), "--json", "-"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{path}: line 4: not an event" in done.stderr


def test_a_missing_file_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_people_get_sentences() -> None:
    text = render(crashed("aof-everysec", "power-loss").verdict())
    assert text.startswith("documented-loss\n")
    assert "acknowledged 5, kept 3, lost 2, reaching back" in text
    assert "lost-tail × 2 (silent): The end of the session is gone" in text


def taken_back(**header: object) -> Script:
    """A message in doubt that its reader sees, and then does not."""
    script = Script(**header)
    script.append(1)
    script.append(1, outcome="unknown")
    script.read(2, 0, 1)
    return script


def test_what_a_reader_saw_may_be_taken_back_only_where_that_is_promised() -> None:
    script = taken_back(policy="aof-always", fault="power-loss")
    script.crash("power-loss")
    script.read(2, 0)
    assert (script.names(), script.verdict().status) == (["non-monotonic-read"], "violated")


def test_replicas_lag_before_the_fault_too() -> None:
    script = taken_back(engine="postgres", policy="default", fault="replica-lag")
    script.read(2, 0)
    script.crash("replica-lag")
    script.read(2, 0)
    assert (script.names(), script.verdict().status) == (["non-monotonic-read"], "documented-loss")


@pytest.mark.parametrize(("answered", "status"), [(False, "documented-loss"), (True, "violated")])
def test_an_engine_dies_at_the_latest_when_it_is_said_to_and_at_the_earliest_after_its_last_answer(
    answered: bool, status: str
) -> None:
    """On a busy machine the event that it stopped comes late. A promise is broken only if it was alive for too long."""
    script = Script(policy="aof-everysec", fault="power-loss")
    script.append(1)
    script.append(1)
    script.inject("power-loss")
    script.wait(2.5)
    if answered:
        script.read(2, 0, 1)
    script.restart()
    script.heal("power-loss")
    script.read(2, 0)
    assert script.verdict().status == status


@pytest.mark.parametrize(
    ("ago_s", "sync_s", "status"),
    [
        (0.0, 0.0, "violated"),
        (0.6, 0.0, "documented-loss"),
        (0.0, 0.3, "documented-loss"),
        (0.2, 0.1, "violated"),
    ],
)
def test_how_long_an_engine_took_to_die_and_to_sync_is_no_part_of_the_loss(
    ago_s: float, sync_s: float, status: str
) -> None:
    """An `everysec` write is safe after max(1 s, D) + D, if a sync takes D."""
    script = Script(policy="aof-everysec", fault="power-loss")
    script.append(1)
    script.append(1)
    script.wait(2.5)
    script.inject("power-loss")
    script.step()
    script.writer.engine_stopped(FaultDetail(ago_s=ago_s))
    script.writer.engine_started()
    script.writer.fault_healed("power-loss", FaultDetail(sync_s=sync_s))
    script.read(2, 0)
    assert script.verdict().status == status


def test_without_a_fault_a_clean_history_is_held() -> None:
    script = Script()
    script.append(1)
    script.read(2, 0)
    assert script.verdict().status == "held"


def test_a_loss_that_reaches_back_exactly_as_far_as_promised_is_documented() -> None:
    script = Script(policy="aof-everysec", fault="power-loss")
    script.append(1)
    script.begin(1)
    script.now_s = 0.99
    script.ok(1)
    script.now_s = 2.99
    script.crash("power-loss")
    script.read(2, 0)
    verdict = script.verdict()
    assert (verdict.loss_window_s, verdict.loss_after_s, verdict.status) == (2.0, None, "documented-loss")
    assert verdict.reach == ", back to 2.00 s before the fault"
    assert [anomaly.covered for anomaly in verdict.anomalies] == [True]


def test_a_server_that_went_on_after_the_fault_is_told_for_how_long() -> None:
    script = Script(engine="redis-sentinel", policy="min-replicas-lag-10", fault="isolate-primary")
    script.append(1)
    script.now_s = 1.0
    script.inject("isolate-primary")
    script.begin(1)
    script.now_s = 4.5
    script.ok(1)
    script.now_s = 6.0
    script.heal("isolate-primary")
    script.read(2, 0)
    verdict = script.verdict()
    assert (verdict.status, verdict.loss_window_s, verdict.loss_after_s) == ("documented-loss", 0.0, 3.5)
    assert verdict.reach == ", for 3.50 s after the fault"
    assert "min-replicas-max-lag 10" in verdict.promise


@pytest.mark.parametrize(("fault", "status"), [("power-loss", "documented-loss"), ("cut", "violated")])
def test_what_was_lost_as_announced_may_be_written_back_by_somebody_who_still_has_the_list(
    tmp_path: Path, fault: str, status: str
) -> None:
    header = HistoryHeader(recollect="0", engine="redis", policy="aof-everysec", fault=fault, ok_ops_min=1)
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file, HistoryWriter(file, header) as history:
        history.invoke_read(0, "s")
        loaded = history.ok_read(0, [])
        history.invoke_write(0, "s", "save", WriteAsked(0, (7,), base=loaded))
        history.ok(0)
        history.invoke_read(0, "s")
        kept = history.ok_read(0, [Element(0, 7)])
        history.fault_injected(fault)
        history.fault_healed(fault)
        history.invoke_read(1, "s")
        history.ok_read(1, [])
        history.invoke_write(0, "s", "save", WriteAsked(1, (8,), base=kept))
        history.ok(0)
        history.invoke_read(1, "s")
        history.ok_read(1, [Element(0, 7), Element(1, 8)])
    verdict = analyze(History(path))
    assert [anomaly.name for anomaly in verdict.anomalies] != []
    assert verdict.status == status, verdict


def test_what_the_promise_covers_comes_last_and_says_so() -> None:
    """Redis with snapshots only loses everything to a kill: violated is what nobody had written."""
    script = written(policy="rdb", fault="kill-engine")
    script.read(2, 0, 1, 2, Element(50, 7))
    script.crash()
    script.read(2)
    verdict = script.verdict()
    assert [(anomaly.name, anomaly.covered) for anomaly in verdict.anomalies] == [
        ("phantom", False),
        ("silent-reset", True),
    ]
    assert verdict.reason is not None
    assert verdict.reason.startswith("phantom is not covered")


def test_a_loss_that_reaches_too_far_back_is_not_covered() -> None:
    script = written(policy="aof-everysec", fault="power-loss")
    script.wait(5.0)
    script.crash("power-loss")
    script.read(2)
    verdict = script.verdict()
    assert verdict.status == "violated"
    assert [anomaly.covered for anomaly in verdict.anomalies] == [False]


@pytest.mark.parametrize(("old_s", "status"), [(0.1, "unknown"), (0.7, "violated")])
def test_a_run_younger_than_the_promised_window_proves_nothing_by_failing_loudly(
    old_s: float, status: str
) -> None:
    """Asynchronous commits: the table itself was within the window, and every read says that it is not there."""
    script = Script(engine="postgres", policy="async-commit", fault="power-loss")
    script.wait(old_s)
    for _ in range(10):
        script.append(1)
    script.crash("power-loss")
    script.fail_read(2, error="UndefinedTableError")
    script.fail_read(2, error="UndefinedTableError")
    verdict = script.verdict()
    assert verdict.status == status, verdict.reason
    assert "younger than the promised window" in (verdict.reason or "") or status == "violated"
