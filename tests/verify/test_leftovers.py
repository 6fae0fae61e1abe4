"""However a run ends, nothing of it is left: no process, no socket, no temporary folder."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

PROJECT = Path(__file__).parent.parent.parent
TIMEOUT_S = 40.0


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the run makes its temporary folders: nobody else's are there."""
    folder = tmp_path / "t"
    folder.mkdir()
    return folder


@pytest.fixture
def begin(tmp_path: Path, temporary: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    started = []

    def begin(*arguments: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "TMPDIR": str(temporary)}
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect", "verify", *arguments, "--seed", "1", "--out", str(tmp_path / "run")],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def eventually(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + TIMEOUT_S
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def started_by_the_target(folder: Path) -> list[int]:
    """The target writes their numbers beside its lines."""
    return [int(line) for file in folder.glob("*.pids") for line in file.read_text().split()]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("ending", ["by itself", "SIGTERM", "SIGKILL"])
def test_nothing_is_left(
    ending: str, begin: Callable[..., "subprocess.Popen[str]"], tmp_path: Path, temporary: Path
) -> None:
    left_by = tmp_path / "left"
    left_by.mkdir()
    (tmp_path / "leaving.py").write_text(
        "from tests.verify.stores import Leaving\n"
        f"def factory(endpoint):\n    return Leaving(endpoint, {str(left_by)!r})\n"
    )
    process = begin(
        "leaving:factory",
        "--engine",
        "redis",
        "--policy",
        "aof-always",
        "--fault",
        "kill-app",
        "--no-confirm",
    )
    assert eventually(lambda: len(started_by_the_target(left_by)) > 1 or process.poll() is not None)
    below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    if ending != "by itself":
        process.send_signal(getattr(signal, ending))
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert "Traceback" not in output, output
    if ending == "SIGTERM":
        assert "interrupted" in output
    assert eventually(lambda: not any(temporary.iterdir())), list(temporary.rglob("*"))
    left = [*started_by_the_target(left_by), *(child.pid for child in below)]
    assert len(left) > 1
    assert eventually(lambda: all(map(gone, left))), [pid for pid in left if not gone(pid)]
