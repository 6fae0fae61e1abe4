"""The examples, run as their users would: an environment of their own, with the wheel of this checkout installed."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
UV = shutil.which("uv") or next((str(uv) for uv in [PROJECT / ".uv" / "bin" / "uv"] if uv.exists()), None)

pytestmark = [
    pytest.mark.xdist_group("examples"),
    pytest.mark.skipif("RECOLLECT_FULL_DOCS" not in os.environ, reason="set RECOLLECT_FULL_DOCS=1"),
]


@dataclass(frozen=True)
class Example:
    folder: str
    passed: frozenset[str]
    failed: dict[str, str]
    """What must be red, and the anomaly for which it must be."""


EXAMPLES = [
    Example(
        "redis-chat",
        passed=frozenset(
            f"{policy}-{fault}"
            for policy in ("aof-everysec", "rdb")
            for fault in ("kill-engine", "concurrent-writers")
        ),
        failed={"aof-everysec-clock-forward": "expired-early", "rdb-clock-forward": "expired-early"},
    ),
    Example(
        "agents-session",
        passed=frozenset(),
        failed={"wal-full-kill-app-at-line": "lost-", "wal-full-concurrent-writers": "lost-update"},
    ),
]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    builder = [UV, "build", "--wheel"] if UV else [sys.executable, "-m", "pip", "wheel", "--no-deps"]
    out = "--out-dir" if UV else "--wheel-dir"
    _run_or_skip([*builder, out, str(folder), str(PROJECT)], "the wheel cannot be built")
    return next(folder.glob("recollect-*.whl"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.folder)
def test_it_finds_its_own_bug(example: Example, wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / example.folder
    shutil.copytree(
        PROJECT / "examples" / example.folder, folder, ignore=shutil.ignore_patterns(".*", "__pycache__")
    )
    python = _environment(folder, wheel)
    command = [str(python), "-m", "pytest", "-v", "-p", "no:cacheprovider", "--recollect-seed=3"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=_clean())
    outcomes = dict(re.findall(r"test_survives\[(\S+)\] (PASSED|FAILED)", done.stdout))
    assert outcomes == dict.fromkeys(example.passed, "PASSED") | dict.fromkeys(example.failed, "FAILED"), (
        done.stdout
    )
    for name, anomaly in example.failed.items():
        section = re.search(
            rf"_ \w+\.test_survives\[{name}\] _+\n(.+?)\n(?:_____|=====)", done.stdout, re.DOTALL
        )
        assert section is not None, done.stdout
        assert re.search(rf"^{anomaly}\S* \(silent\), ", section[1], re.MULTILINE), section[1]
        assert "\nrecollect replay " in section[1]
    assert "Traceback" not in done.stdout


def _environment(folder: Path, wheel: Path) -> Path:
    """As its pyproject.toml says, with our wheel in the place of the published package."""
    declared = tomllib.loads((folder / "pyproject.toml").read_text())
    wanted = [*declared["project"]["dependencies"], *declared["dependency-groups"]["test"]]
    packages = [f"{name} @ {wheel.as_uri()}" if name.startswith("recollect[") else name for name in wanted]
    home = folder / "env"
    python = home / "bin" / "python"
    if UV:
        _run_or_skip([UV, "venv", "--python", sys.executable, str(home)], "no environment can be made")
        install = [UV, "pip", "install", "--python", str(python)]
    else:
        _run_or_skip([sys.executable, "-m", "venv", str(home)], "no environment can be made")
        install = [str(python), "-m", "pip", "install"]
    _run_or_skip([*install, *packages], "its packages cannot be installed")
    return python


NO_INDEX = re.compile(r"fetch|connect|network|resolve|timed out|No matching distribution", re.IGNORECASE)


def _run_or_skip(command: list[str], why: str) -> None:
    """Without a package index there is nothing to show; whatever else goes wrong is ours."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=_clean())
    said = (done.stderr or done.stdout).strip()[-600:]
    if done.returncode != 0 and NO_INDEX.search(said):
        pytest.skip(f"{why}: {said}")
    assert done.returncode == 0, f"{why}: {said}"


def _clean() -> dict[str, str]:
    """Nothing of our own test session reaches the user's."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "COV_", "RECOLLECT")) and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
