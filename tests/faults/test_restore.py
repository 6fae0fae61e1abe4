"""A restored backup: what must be in it, what cannot be, and who notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect.verify.judging.evidence import NOTICED, UNSAFE_COPY
from recollect.verify.judging.op import FaultDetail
from recollect.verify.running.faults import FAULTS
from recollect.verify.running.faults.backups import BACKUPS
from recollect.verify.running.faults.restore import backup_of
from recollect.verify.running.run import Run
from recollect.verify.running.scenario import Scenario
from tests.checkers.history_script import Script
from tests.faults.cells import our_cell


def restored(kept: int, *, detail: str = "sqlite-backup", noticed: bool = False) -> Script:
    """Three messages, a backup that begins, two more; then a read with the first `kept` of the five."""
    script = Script(engine="sqlite", policy="wal-full", fault="restore")
    for _ in range(3):
        script.append(1)
    script.writer.fault_injected("restore", FaultDetail(detail=detail))
    for _ in range(2):
        script.append(1)
    script.read(2, 0, 1, 2, 3, 4)
    script.writer.engine_stopped()
    script.writer.engine_started()
    script.writer.fault_healed("restore", FaultDetail(detail=detail))
    if noticed:
        script.writer.fault_injected("restore", FaultDetail(detail=NOTICED))
        script.writer.fault_healed("restore", FaultDetail(detail=NOTICED))
    script.read(2, *range(kept))
    return script


@pytest.mark.parametrize(
    ("kept", "noticed", "status"),
    [
        (5, False, "held"),
        (3, False, "exposed"),
        (3, True, "documented-loss"),
        (2, False, "violated"),
        (2, True, "violated"),
        (0, True, "violated"),
    ],
)
def test_what_is_older_than_the_backup_must_be_in_it(kept: int, noticed: bool, status: str) -> None:
    verdict = restored(kept, noticed=noticed).verdict()
    assert verdict.status == status, verdict.reason
    if status == "violated":
        assert "acknowledged before the backup began is there" in (verdict.reason or "")


def test_a_torn_copy_is_told_and_nobody_is_accused_of_it() -> None:
    verdict = restored(0, detail=UNSAFE_COPY).verdict()
    assert verdict.status == "exposed"
    assert "the copy is torn" in (verdict.reason or "")


@pytest.mark.parametrize(
    ("engine", "policy", "variant", "more", "says"),
    [
        ("redis", "rdb", "aof-copy", {}, "there is no append-only file"),
        ("redis", "aof-always", "rdb-copy", {}, "does not load a dump.rdb"),
        ("redis", "none", "", {}, "there is nothing to restore"),
        ("postgres", "default", "pg-basebackup", {"provider": "docker"}, "a dump (pg-dump) is restored"),
        ("redis", "rdb", "pg-dump", {}, "pg-dump is a backup of postgres"),
        ("redis", "rdb", "", {"provider": "docker:tmpfs"}, "in the container's memory"),
    ],
)
def test_what_cannot_be_restored_says_why(
    engine: str, policy: str, variant: str, more: dict[str, Any], says: str
) -> None:
    scenario = Scenario(target=engine, engine=engine, policy=policy, fault="restore", variant=variant, **more)
    assert says in (FAULTS["restore"].obstacle(scenario) or "")


def test_every_engine_has_a_usual_backup() -> None:
    for engine, policy in (
        ("redis", "rdb"),
        ("redis", "mixed"),
        ("postgres", "default"),
        ("sqlite", "wal-full"),
    ):
        scenario = Scenario(target="t", engine=engine, policy=policy, fault="restore")
        assert backup_of(scenario).safe
        assert FAULTS["restore"].obstacle(scenario) is None
    assert {backup.engine for backup in BACKUPS.values()} == {"redis", "postgres", "sqlite", "chroma"}


@pytest.mark.parametrize(
    ("store", "variant", "more"),
    [
        ("sqlite", "", {}),
        ("redis", "", {}),
        ("redis", "", {"policy": "rdb"}),
        ("postgres", "", {}),
        ("postgres", "pg-basebackup", {}),
    ],
)
def test_our_witness_notices_and_nothing_older_is_lost(
    store: str, variant: str, more: dict[str, Any], tmp_path: Path
) -> None:
    """One writer: the witness is its own, and what it wrote last is newer than the backup."""
    alone: dict[str, Any] = {"writers": 1, "readers": 0, "variant": variant}
    scenario = our_cell(store, "restore", **alone)
    if more:
        scenario = Scenario(target=store, engine=store, fault="restore", seed=1, **alone, **more)
    assert FAULTS["restore"].obstacle(scenario) is None
    run = Run(scenario, tmp_path)
    verdict = run.execute()
    assert verdict.status == "documented-loss", verdict.reason
    assert verdict.kept
    assert any("the store noticed" in remark for remark in run.notes.remarks)


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ("appendonly yes\nappendfsync always\n", "documented-loss"),
        ('appendonly no\nsave "3600 1"\n', "documented-loss"),
        ('appendonly no\nsave ""\n', "skipped"),
    ],
)
def test_a_redis_with_settings_of_ones_own_says_what_it_keeps(
    settings: str, status: str, tmp_path: Path
) -> None:
    (tmp_path / "redis.conf").write_text(settings)
    scenario = Scenario(
        target="redis",
        engine="redis",
        policy="custom",
        fault="restore",
        seed=1,
        engine_config=str(tmp_path / "redis.conf"),
    )
    verdict = Run(scenario, tmp_path).execute()
    assert verdict.status == status, verdict
    assert verdict.kept or status == "skipped"


def test_a_base_backup_without_its_log_does_not_start(tmp_path: Path) -> None:
    verdict = Run(our_cell("postgres", "restore", variant="pg-basebackup-no-wal"), tmp_path).execute()
    assert verdict.status == "documented-loss"
    assert [anomaly.name for anomaly in verdict.anomalies] == ["refuses-to-start"]


def test_a_copy_of_a_live_file_is_torn(tmp_path: Path) -> None:
    verdict = Run(our_cell("sqlite", "restore", variant="cp"), tmp_path).execute()
    assert verdict.status == "exposed", verdict.reason
    assert verdict.lost
