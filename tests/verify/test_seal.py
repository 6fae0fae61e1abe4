"""A run folder from somebody else is somebody else's program: `replay` runs nothing of it unless it is told to."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from recollect.cli import build
from recollect.verify.running import scenario as scenarios
from recollect.verify.running import seal
from recollect.verify.running.scenario import Scenario

CODE = "import pathlib\npathlib.Path({canary!r}).touch()\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "recollect"


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "code-of-others-ran"


def scenario(tmp_path: Path, canary: Path, kind: str) -> Scenario:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "store_of_others.py").write_text(CODE.format(canary=str(canary)))
    interpreter = folder / "python"
    interpreter.write_text(f"#!/bin/sh\ntouch {canary}\n")
    interpreter.chmod(0o755)
    plain = Scenario(
        target="sqlite", engine="sqlite", policy="wal-full", fault="restart", before_s=0.1, after_s=0.1
    )
    kinds: dict[str, dict[str, object]] = {
        "target": {"target": "store_of_others:make", "path": (str(folder),)},
        "previous": {"previous": "store_of_others:make", "path": (str(folder),), "fault": "older-writer"},
        "interpreter": {"previous_python": str(interpreter), "fault": "older-writer"},
        "configuration": {"engine": "redis", "policy": "custom", "engine_config": str(folder / "redis.conf")},
        "provider": {"engine": "redis", "policy": "none", "provider": f"compose:{folder}"},
        "nothing": {},
    }
    return msgspec.structs.replace(plain, **kinds[kind])


def saved(tmp_path: Path, one: Scenario) -> Path:
    folder = tmp_path / "cell"
    folder.mkdir()
    scenarios.save(one, folder)
    return folder


def replay(folder: Path, *more: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "recollect", "replay", str(folder), "--times", "1", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["target", "previous", "interpreter", "configuration", "provider"])
@pytest.mark.parametrize("sealed", ["no seal", "another user's", "changed since"])
def test_code_of_others_does_not_run(
    tmp_path: Path, canary: Path, state: Path, kind: str, sealed: str
) -> None:
    folder = saved(tmp_path, scenario(tmp_path, canary, kind))
    if sealed == "another user's":
        seal.write(folder)
        (state / "seal-key").unlink()
        seal.write(saved(tmp_path / "state", scenario(tmp_path / "state", canary, "nothing")))
    elif sealed == "changed since":
        seal.write(folder)
        text = (folder / scenarios.FILE).read_text()
        (folder / scenarios.FILE).write_text(text.replace('"seed": 0', '"seed": 1'))
    done = CliRunner().invoke(build(["replay"]), ["replay", str(folder), "--times", "1"])
    assert done.exit_code == 2
    assert "--trust" in done.output
    assert str(tmp_path / "theirs") in done.output
    assert not canary.exists()


@pytest.mark.parametrize("kind", ["target", "interpreter"])
def test_it_runs_when_it_is_trusted(tmp_path: Path, canary: Path, kind: str) -> None:
    folder = saved(tmp_path, scenario(tmp_path, canary, kind))
    _, told = replay(folder, "--trust")
    assert canary.exists(), told


def test_a_run_of_ones_own_needs_no_word(tmp_path: Path, canary: Path) -> None:
    folder = saved(tmp_path, scenario(tmp_path, canary, "target"))
    seal.write(folder)
    _, told = replay(folder)
    assert "--trust" not in told
    assert canary.exists()


def test_built_in_names_are_nobodys_code(tmp_path: Path, canary: Path) -> None:
    code, told = replay(saved(tmp_path, scenario(tmp_path, canary, "nothing")))
    assert code == 0, told


def test_the_key_is_its_owners(tmp_path: Path, canary: Path, state: Path) -> None:
    folder = saved(tmp_path, scenario(tmp_path, canary, "target"))
    seal.write(folder)
    key = state / "seal-key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert seal.fits(folder)
    key.chmod(0o644)
    assert not seal.fits(folder), "others could have made this seal"
    key.chmod(0o600)
    kept = key.rename(tmp_path / "elsewhere")
    key.symlink_to(kept)
    assert not seal.fits(folder)


def test_without_a_place_for_the_key_nothing_is_sealed(
    tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    folder = saved(tmp_path, scenario(tmp_path, canary, "target"))
    seal.write(folder)
    assert [file.name for file in folder.iterdir()] == [scenarios.FILE]
    assert not seal.fits(folder)
