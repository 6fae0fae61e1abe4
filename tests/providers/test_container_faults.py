"""Faults of the disk and of the clock inside containers: the libraries are mounted in and preloaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recollect.verify.providers import docker
from recollect.verify.running.faults import fault_named
from recollect.verify.running.scenario import Scenario
from tests.faults.cells import run_cell

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.usefixtures("seen")]


@pytest.fixture
def seen(daemon: str) -> None:
    if (reason := docker.unseen_volumes()) is not None:
        pytest.skip(reason)
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: the disk recorder cannot be built")


def cell(fault: str, policy: str = "aof-always", provider: str = "docker", variant: str = "") -> Scenario:
    return Scenario(
        target="redis",
        engine="redis@7",
        policy=policy,
        fault=fault,
        variant=variant,
        provider=provider,
        seed=1,
    )


@pytest.mark.parametrize(("policy", "status"), [("aof-no", "documented-loss"), ("aof-always", "held")])
def test_power_loss(policy: str, status: str, tmp_path: Path) -> None:
    """What Redis never syncs is gone, and what it syncs before it answers is not: the recorder sees both."""
    assert run_cell(cell("power-loss", policy), tmp_path).status == status


def test_the_engines_clock(tmp_path: Path) -> None:
    """The fault itself asks the engine for its time, and gives up if the clock did not move."""
    assert run_cell(cell("clock-back", variant="engine"), tmp_path).status == "held"


def test_bits_flip_in_a_volume(tmp_path: Path) -> None:
    """The append-only file has no checksums: other content is told, never silently taken for what was written."""
    verdict = run_cell(cell("bit-rot"), tmp_path)
    assert "corrupted" in [anomaly.name for anomaly in verdict.anomalies]


def test_a_dump_of_a_server_in_a_container_is_restored(tmp_path: Path) -> None:
    """It is dumped over its port; what is older than the dump is there again, on a volume that was empty."""
    scenario = Scenario(
        target="postgres", engine="postgres@16", policy="default", fault="restore", provider="docker", seed=1
    )
    verdict = run_cell(scenario, tmp_path)
    assert verdict.status == "documented-loss", verdict
    assert verdict.kept
    assert verdict.lost


@pytest.mark.parametrize(
    ("provider", "reason"), [("docker:tmpfs", "container's memory"), ("docker:anonymous", "anonymous volume")]
)
def test_a_folder_that_has_no_files_here(provider: str, reason: str) -> None:
    assert reason in (fault_named("power-loss").obstacle(cell("power-loss", provider=provider)) or "")
