"""Whole runs on real engines: what is held, what is lost as documented, and targets that misbehave."""

import os
import venv
from pathlib import Path

import pytest

from recollect.guarantees import promise
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History
from recollect.verify.judging.op import WriteAsked
from recollect.verify.judging.verdict import Verdict
from recollect.verify.running.run import Run, promised_s
from recollect.verify.running.scenario import Scenario, load


def run(folder: Path, target: str, policy: str, fault: str, **more: object) -> tuple[Run, Verdict]:
    engine = more.pop("engine", target)
    scenario = Scenario(target=target, engine=str(engine), policy=policy, fault=fault, seed=3, **more)  # type: ignore[arg-type]
    one = Run(scenario, folder)
    return one, one.execute()


def test_redis_that_syncs_always_holds(tmp_path: Path) -> None:
    _, verdict = run(tmp_path, "redis", "aof-always", "kill-engine", workload="turns")
    assert (verdict.status, verdict.lost) == ("held", 0), verdict
    assert verdict.acked > 10


def test_redis_with_snapshots_only_loses_everything_since_the_last_as_documented(tmp_path: Path) -> None:
    _, verdict = run(tmp_path, "redis", "rdb", "kill-engine", workload="turns")
    assert verdict.status == "documented-loss", verdict
    assert verdict.lost > 10
    assert "snapshot" in verdict.promise


@pytest.mark.parametrize("fault", ["power-loss", "fsync-error", "slow-fsync"])
def test_power_is_cut_when_a_run_is_older_than_what_may_be_lost(fault: str) -> None:
    """In a younger one the store itself may be gone, and its refusal to go on would prove nothing."""
    scenario = Scenario(target="redis", engine="redis", policy="aof-everysec", fault=fault)
    assert promised_s(scenario) > (promise("redis", "aof-everysec", fault).window_s or 0.0) > 0.0


def test_other_faults_do_not_wait_for_a_long_window() -> None:
    scenario = Scenario(target="redis", engine="redis", policy="aof-everysec", fault="kill-engine")
    assert promised_s(scenario) == 0.0


def test_a_cut_comes_no_earlier(tmp_path: Path) -> None:
    one, verdict = run(tmp_path, "redis", "aof-everysec", "power-loss", workload="turns")
    assert verdict.status in ("held", "documented-loss"), verdict
    struck_s = next(event.time_s for event in History(one.history) if event.kind == "fault-injected")
    assert struck_s >= (verdict.promised_window_s or 0.0) > 0.0


@pytest.mark.parametrize(("load", "status"), [(0.0, "violated"), (8.0, "held")])
def test_on_a_busy_machine_a_store_may_take_longer_to_recover(
    load: float, status: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    target = "tests.verify.slow_to_return:factory"
    _, verdict = run(tmp_path, target, "aof-always", "kill-engine", engine="redis", workload="turns")
    assert verdict.status == status, verdict
    assert [anomaly.name for anomaly in verdict.anomalies] == ["does-not-recover"] * (status == "violated")


def test_a_run_in_the_folder_of_another_has_its_own_history_and_witness(tmp_path: Path) -> None:
    one, first = run(tmp_path, "redis", "aof-everysec", "wipe-volume")
    began = one.history.read_bytes()
    _, second = run(tmp_path, "redis", "aof-everysec", "wipe-volume")
    assert (first.status, second.status) == ("documented-loss", "documented-loss"), second
    assert one.history.read_bytes() != began


def test_what_another_run_left_is_no_evidence_for_one_that_did_not_begin(tmp_path: Path) -> None:
    run(tmp_path, "sqlite", "wal-full", "none")
    _, verdict = run(tmp_path, "tests.verify.raises_at_import:make", "wal-full", "none", engine="sqlite")
    assert (verdict.status, verdict.acked) == ("unknown", 0), verdict


def test_sqlite_killed_with_its_processes_holds(tmp_path: Path) -> None:
    one, verdict = run(tmp_path, "sqlite", "wal-full", "kill-engine", workload="turns")
    assert (verdict.status, verdict.lost) == ("held", 0), verdict
    lines = one.history.read_bytes().splitlines(keepends=True)
    one.history.write_bytes(b"".join(lines[: len(lines) * 4 // 5]))
    again = analyze(History(one.history))
    assert (again.status, again.truncated) == ("unknown", True), "the end of the run was cut off"


def test_everything_needed_to_run_it_again_is_saved(tmp_path: Path) -> None:
    one, _ = run(tmp_path, "sqlite", "wal-full", "concurrent-writers", workload="summarise")
    assert load(tmp_path) == one.scenario
    history = History(tmp_path / "history.jsonl")
    assert history.header.fault == "concurrent-writers"
    events = list(history)
    processes = {event.process for event in events if event.kind == "invoke"}
    final = [event for event in events if event.kind == "invoke"][-1]
    assert final.operation == "read"
    assert final.process == max(processes), "the last reads are those of a fresh process"


def test_a_target_that_hangs_is_named_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.verify.running.driver.OPERATION_TIMEOUT_S", 0.3)
    monkeypatch.setattr("recollect.verify.running.driver.SETTLE_TIMEOUT_S", 1.0)
    monkeypatch.setattr("recollect.verify.target.workers.SETTINGS_TIMEOUT_S", 0.3)
    one, verdict = run(
        tmp_path, "tests.verify.stores:hangs", "wal-full", "kill-app", engine="sqlite", workload="turns"
    )
    assert verdict.status == "unknown"
    assert any("an append took longer than" in hang for hang in one.notes.hangs)


def test_what_hangs_although_nothing_was_broken_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither now nor when it is judged again: the rest of the plan was never tried."""
    monkeypatch.setattr("recollect.verify.running.driver.OPERATION_TIMEOUT_S", 0.5)
    one, verdict = run(
        tmp_path, "tests.verify.sticks:factory", "wal-full", "none", engine="sqlite", workload="turns"
    )
    assert verdict.status == analyze(History(one.history)).status == "unknown"
    assert "nothing was broken, and an append took longer than" in (verdict.reason or "")


@pytest.mark.parametrize(("store", "status"), [("factory", "unknown"), ("twin", "held")])
def test_what_hangs_because_another_caller_gave_up_has_not_held(
    store: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.verify.running.driver.OPERATION_TIMEOUT_S", 2.0)
    target = f"tests.verify.flushes:{store}"
    _, verdict = run(tmp_path, target, "wal-full", "cancel", engine="sqlite", workload="turns")
    assert verdict.status == status
    if status == "unknown":
        assert "nothing was broken, and an append took longer than" in (verdict.reason or "")


def test_a_target_that_ends_its_own_process_is_named(tmp_path: Path) -> None:
    one, verdict = run(
        tmp_path, "tests.verify.stores:suicidal", "wal-full", "kill-app", engine="sqlite", workload="turns"
    )
    assert verdict.status == "unknown"
    assert any("exit code 7" in death for death in one.notes.deaths)
    assert "exit code 7" in (verdict.reason or "")


def test_what_a_target_prints_goes_to_its_log(tmp_path: Path) -> None:
    _, verdict = run(
        tmp_path, "tests.verify.stores:noisy", "wal-full", "kill-app", engine="sqlite", workload="turns"
    )
    assert verdict.acked > 0
    assert b"garbage" in (tmp_path / "target.log").read_bytes()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("raises", "no database configured"),
        ("shapeless", "no known shape"),
        ("missing", "has no 'missing'"),
        ("boastful", "unknown traits ['never_wrong']"),
        ("vague", "retention_s is 'a week', not a number of seconds"),
    ],
)
def test_a_target_that_cannot_be_opened_is_unknown_with_the_reason(
    tmp_path: Path, name: str, says: str
) -> None:
    _, verdict = run(
        tmp_path, f"tests.verify.stores:{name}", "wal-full", "kill-app", engine="sqlite", workload="turns"
    )
    assert verdict.status == "unknown"
    assert says in (verdict.reason or "")


FILE = {"engine": "sqlite", "workload": "append"}


def test_a_reader_that_dies_of_one_session_is_followed_by_one_that_reads_the_next(tmp_path: Path) -> None:
    one, verdict = run(
        tmp_path,
        "tests.verify.stores:dies_reading",
        "wal-full",
        "kill-app",
        readers=0,
        writers=1,
        ops_max=30,
        **FILE,
    )
    assert any("exit code 9" in death for death in one.notes.deaths)
    read = {
        event.session
        for event in History(tmp_path / "history.jsonl")
        if event.kind == "invoke" and event.operation == "read"
    }
    assert read >= {"session-0", "session-1", "session-2"}, verdict


def test_a_store_whose_close_hangs_is_named_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.verify.target.workers.CLOSE_TIMEOUT_S", 0.2)
    one, verdict = run(tmp_path, "tests.verify.stores:never_closes", "wal-full", "restart", **FILE)
    assert verdict.status == "held", verdict
    assert any("close() took longer" in hang for hang in one.notes.hangs)


@pytest.mark.parametrize(
    ("fault", "more", "says"),
    [
        (
            "kill-app-at-line",
            {"variant": "stores.py:1"},
            "does not execute stores.py:1; it executes stores.py:",
        ),
        ("older-writer", {"previous": "tests.verify.stores:raises"}, "no database configured"),
        ("older-writer", {"previous_python": "/no/such/python"}, "--previous-python /no/such/python"),
    ],
)
def test_a_fault_that_cannot_happen_is_no_verdict(
    tmp_path: Path, fault: str, more: dict[str, str], says: str
) -> None:
    _, verdict = run(tmp_path, "tests.verify.stores:in_file", "wal-full", fault, **FILE, **more)
    assert verdict.status == "unknown"
    assert says in (verdict.reason or "")


def test_the_last_release_runs_under_the_interpreter_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both releases have the same name; the last one is installed there and writes something this one cannot read."""
    here = tmp_path / "project"
    here.mkdir()
    release = Path(__file__).with_name("stores.py").read_text()
    (here / "releases.py").write_text(release)
    venv.create(tmp_path / "last", symlinks=True, with_pip=False)
    installed = next((tmp_path / "last").glob("lib/python*/site-packages"))
    (installed / "releases.py").write_text(release.replace('message + "\\n"', 'message + "!\\n"'))
    monkeypatch.chdir(here)
    more = {"previous_python": str(tmp_path / "last" / "bin" / "python"), **FILE}
    (tmp_path / "run").mkdir()
    _, verdict = run(tmp_path / "run", "releases:in_file", "wal-full", "older-writer", **more)
    assert verdict.status == "violated", verdict
    assert {anomaly.name for anomaly in verdict.anomalies} >= {"corrupted"}

    (installed / "releases.py").unlink()
    (tmp_path / "again").mkdir()
    _, verdict = run(tmp_path / "again", "releases:in_file", "wal-full", "older-writer", **more)
    assert verdict.status == "unknown"
    assert "no module 'releases'" in (verdict.reason or "")


def test_an_engine_that_is_not_installed_is_skipped_with_the_command_that_gets_it(tmp_path: Path) -> None:
    _, verdict = run(tmp_path, "redis", "aof-always", "kill-engine", engine="redis@99", workload="turns")
    assert verdict.status == "skipped"
    assert "docker pull redis:99" in (verdict.reason or "")


def test_an_acknowledgement_that_comes_late_does_not_belong_behind_the_fault(tmp_path: Path) -> None:
    """The engine forgets everything, as documented; what was written before it died is part of that."""
    more = {"engine": "redis", "workload": "append", "readers": 0, "writers": 6}
    _, verdict = run(tmp_path, "tests.verify.stores:slow_to_say", "none", "kill-engine", **more)
    assert verdict.status == "documented-loss", verdict
    assert "lost-update" not in {anomaly.name for anomaly in verdict.anomalies}


def asked(folder: Path) -> dict[int, list[tuple[str, str, str]]]:
    """What each client asked, in its order; a turn that is sent again was asked once."""
    found: dict[int, list[tuple[str, str, str]]] = {}
    sent: set[int] = set()
    for event in History(folder / "history.jsonl"):
        if event.kind == "invoke":
            write = event.value if isinstance(event.value, WriteAsked) else None
            if write is None or write.first not in sent:
                size = len(write.checksums) if write else 0
                found.setdefault(event.process, []).append((str(event.operation), event.session, str(size)))
            sent |= {write.first} if write else set()
    return found


def test_a_seed_repeats_what_every_client_asks(tmp_path: Path) -> None:
    schedules = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        run(tmp_path / name, "sqlite", "wal-full", "concurrent-writers", workload="turns")
        schedules.append(asked(tmp_path / name))
    one, two = schedules
    assert one.keys() == two.keys()
    for process in list(one)[:4]:  # those that work until the time is over; the last one reads
        common = min(len(one[process]), len(two[process]))
        assert common >= 5
        assert one[process][:common] == two[process][:common]
    assert one[0] != one[1], "every client has a plan of its own"
