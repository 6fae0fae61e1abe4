"""Disk faults as cells: our stores under every kind of policy, and stores with one mistake each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from recollect.verify.judging.verdict import Verdict
from recollect.verify.providers import docker
from recollect.verify.running.faults import FAULTS, recorded_engine
from recollect.verify.running.faults import disk as disk_faults
from recollect.verify.running.scenario import Scenario
from tests.faults.cells import errors, run_cell


def cell(
    target: str, policy: str, fault: str, folder: Path, *, variant: str = "", engine: str | None = None
) -> Verdict:
    chosen = engine or target
    return run_cell(
        Scenario(target=target, engine=chosen, policy=policy, fault=fault, variant=variant, seed=1), folder
    )


# Whole cells for some rows of the table "What each setting loses" in docs/losses.md (bench/losses.py makes all of
# it). What a power loss and a mere kill do to every row is in tests/disk/test_engine_truths.py, which is cheaper.
POWER_LOSS = {
    ("sqlite", "wal-full"): "held",
    ("sqlite", "wal-normal"): "documented-loss",
    ("sqlite", "delete-full"): "documented-loss",
    ("redis", "rdb"): "documented-loss",
    ("redis", "aof-everysec"): "documented-loss",
    ("redis", "aof-always"): "held",
    ("postgres", "default"): "held",
    ("postgres", "async-commit"): "documented-loss",
}
LOST_TO_A_SLOW_DISK_AND_A_KILL = (("redis", "aof-everysec"), ("postgres", "async-commit"))
"""Neither even writes while a sync is under way."""


@pytest.mark.parametrize(("store", "policy"), POWER_LOSS)
def test_power_loss(store: str, policy: str, tmp_path: Path) -> None:
    verdict = cell(store, policy, "power-loss", tmp_path)
    assert verdict.status == POWER_LOSS[store, policy], verdict
    assert verdict.acked > 0
    assert (verdict.lost > 0) == (verdict.status == "documented-loss")


@pytest.mark.parametrize(("store", "policy"), LOST_TO_A_SLOW_DISK_AND_A_KILL)
def test_a_slow_disk_and_a_mere_kill(store: str, policy: str, tmp_path: Path) -> None:
    verdict = cell(store, policy, "slow-fsync", tmp_path)
    assert verdict.status == "documented-loss", verdict
    assert verdict.lost > 0


@pytest.mark.parametrize(
    ("store", "variant"),
    [("sqlite", "strict"), ("redis", "strict"), ("postgres", "strict"), ("redis", "busy")],
)
def test_our_stores_hold_in_the_strictest_model_and_in_mid_write(
    store: str, variant: str, tmp_path: Path
) -> None:
    """`recollect explore` tries every moment in mid-write; here it is one, by way of the fault."""
    policy = {"sqlite": "wal-full", "redis": "aof-always", "postgres": "default"}[store]
    assert cell(store, policy, "power-loss", tmp_path, variant=variant).status == "held"


@pytest.mark.parametrize("variant", ["bgsave", "bgrewriteaof"])
def test_redis_always_that_pauses_its_fsync_loses_what_came_beside_a_child(
    variant: str, tmp_path: Path
) -> None:
    scenario = Scenario(target="redis", engine="redis", policy="custom", fault="power-loss", seed=1)
    pausing = str(Path("bench/no-appendfsync-on-rewrite.conf").resolve())
    (tmp_path / "always").mkdir()
    assert cell("redis", "aof-always", "power-loss", tmp_path / "always", variant=variant).status == "held"
    (tmp_path / "custom").mkdir()
    verdict = run_cell(replace(scenario, variant=variant, engine_config=pausing), tmp_path / "custom")
    assert verdict.status == "violated"
    assert verdict.anomalies[0].name == "lost-tail"


@pytest.mark.parametrize(
    ("store", "policy", "status"),
    [
        ("redis", "aof-no", "documented-loss"),
        ("redis", "aof-always", "held"),
        ("sqlite", "wal-full", "held"),
        ("postgres", "default", "held"),
    ],
)
def test_a_file_that_ends_in_zeros(store: str, policy: str, status: str, tmp_path: Path) -> None:
    verdict = cell(store, policy, "power-loss", tmp_path, variant="zeros")
    assert verdict.status == status
    assert [found.name for found in verdict.anomalies] == ([] if status == "held" else ["refuses-to-start"])


@pytest.mark.parametrize("fault", ["slow-fsync", "fsync-error", "disk-full"])
@pytest.mark.parametrize(
    ("store", "policy"), [("sqlite", "wal-full"), ("redis", "aof-always"), ("postgres", "default")]
)
def test_a_bad_disk_costs_our_stores_nothing(
    store: str, policy: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough to be the slowest thing there is.
    monkeypatch.setattr(disk_faults, "SYNC_DELAY_S", 0.3)
    for attempt in range(3):
        (tmp_path / str(attempt)).mkdir()
        verdict = cell(store, policy, fault, tmp_path / str(attempt))
        if "recorder was blind" not in (verdict.reason or ""):
            break  # PostgreSQL's panic ends its processes itself, sometimes between a write and its record
    assert verdict.status == "held", verdict


def test_on_a_busy_machine_the_disk_is_full_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (8.0 * (os.cpu_count() or 1), 0.0, 0.0))
    verdict = cell("tests.faults.slow_rows:factory", "wal-full", "disk-full", tmp_path, engine="sqlite")
    assert verdict.status == "held", verdict
    assert any("full" in error for error in errors(tmp_path, "unknown", "disk-full"))


# ---- stores of lines: one that is right, and one for each mistake ----


def lines(name: str, folder: Path, variant: str = "") -> Verdict:
    target = f"tests.faults.line_files:{name}"
    return cell(target, "wal-full", "power-loss", folder, variant=variant, engine="sqlite")


@pytest.mark.parametrize("variant", ["", "strict"])
def test_a_store_that_syncs_holds(variant: str, tmp_path: Path) -> None:
    assert lines("honest", tmp_path, variant).status == "held"


def test_acknowledging_before_the_sync_is_caught(tmp_path: Path) -> None:
    verdict = lines("hasty", tmp_path)
    assert verdict.status == "violated"
    assert verdict.lost > 0


def test_forgetting_the_folder_is_caught_in_strict(tmp_path: Path) -> None:
    (tmp_path / "ext4").mkdir()
    (tmp_path / "strict").mkdir()
    assert lines("forgetful", tmp_path / "ext4").status == "held"
    assert lines("forgetful", tmp_path / "strict", "strict").status == "violated"


def test_what_the_recorder_cannot_see_is_unknown(tmp_path: Path) -> None:
    verdict = lines("hidden", tmp_path)
    assert verdict.status == "unknown"
    assert verdict.reason is not None
    assert "the disk recorder was blind" in verdict.reason


def test_reasons_are_given_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(target="redis", engine="redis", policy="aof-always", fault="power-loss")
    monkeypatch.setattr(recorded_engine, "cannot_see", lambda program: f"{program} is linked statically")
    said = FAULTS["power-loss"].obstacle(scenario)
    assert said is not None
    assert "linked statically" in said


@pytest.mark.parametrize("provider", ["docker", "docker:tmpfs", "compose:stack.yml#memory"])
def test_a_container_whose_files_are_out_of_reach(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "unseen_volumes", lambda: "the daemon is elsewhere")

    def said(fault: str, variant: str = "") -> str:
        scenario = Scenario(
            target="redis",
            engine="redis",
            policy="aof-always",
            fault=fault,
            variant=variant,
            provider=provider,
        )
        return FAULTS[fault].obstacle(scenario) or ""

    for fault in ("power-loss", "slow-fsync", "fsync-error", "disk-full"):
        assert ("container's memory" if "tmpfs" in provider else "the daemon is elsewhere") in said(fault)
    assert said("wipe-volume") == ""  # its volume can be recycled
