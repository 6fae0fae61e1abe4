"""`recollect init`: what it writes runs, and what is there stays."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

STORE = "def make_store(endpoint):\n    raise SystemExit\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(STORE)
    return tmp_path


def init(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "recollect", "init", *words]
    return subprocess.run(command, cwd=project, capture_output=True, text=True)


def test_the_test_file_is_collected_and_the_job_is_yaml(project: Path) -> None:
    (project / "requirements.txt").write_text("redis\n")
    done = init(project, "shop:make_store", "--engine", "redis@7")
    assert done.returncode == 0, done.stderr
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests", "-m", "recollect"]
    collected = subprocess.run(command, cwd=project, capture_output=True, text=True).stdout
    assert "TestMemory::test_survives[aof-everysec-kill-engine]" in collected
    assert collected.count("test_survives[") == 12
    job = yaml.safe_load((project / ".github/workflows/memory.yml").read_text())
    steps = [step.get("run", "") for step in job["jobs"]["memory"]["steps"]]
    assert "pip install -r requirements.txt pytest 'recollect[verify]'" in steps


def test_nothing_is_written_over(project: Path) -> None:
    (project / "tests").mkdir()
    (project / "tests" / "test_memory.py").write_text("mine")
    (project / ".gitlab-ci.yml").write_text("mine too")
    refused = init(project, "shop:make_store")
    assert refused.returncode == 2
    assert "already there" in refused.stderr
    assert (project / "tests" / "test_memory.py").read_text() == "mine"
    assert not (project / ".gitlab").exists()
    forced = init(project, "shop:make_store", "--force")
    assert forced.returncode == 0
    assert "include: [{local: .gitlab/memory.yml}]" in forced.stdout
    assert "memory" in yaml.safe_load((project / ".gitlab/memory.yml").read_text())
    assert (project / ".gitlab-ci.yml").read_text() == "mine too"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shop:make_stor"], "has no 'make_stor'"),
        (["nowhere:make_store"], "no module 'nowhere'"),
        (["shop:make_store", "--engine", "oracle"], "one of sqlite, redis, postgres, chroma"),
    ],
)
def test_a_wrong_name_is_said_at_once(project: Path, words: list[str], said: str) -> None:
    done = init(project, *words)
    assert done.returncode == 2
    assert said in done.stderr.replace("\n", " ")
    assert not (project / "tests").exists()
