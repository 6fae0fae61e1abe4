"""A Python program run under the recorder in a process of its own: libc's calls reach the shim as an
engine's do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from recollect.verify.disk import Blindness, Mode, Model, Record, Recorder, check_sight

PRELUDE = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def write_file(path, data, flags=os.O_CREAT | os.O_WRONLY | os.O_TRUNC):
    fd = os.open(path, flags, 0o600)
    os.write(fd, data)
    return fd
def sync_folder(path="."):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
def ok(result):
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result
"""


def run_program(
    recorder: Recorder, code: str, *, timeout_s: float = 30.0
) -> subprocess.CompletedProcess[str]:
    """Run in the recorder's folder; the caller looks at the status."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", PRELUDE + code],
        cwd=recorder.root,
        env={**os.environ, **recorder.env()},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def recorded(folder: Path, code: str) -> tuple[Recorder, list[Record]]:
    """Run to a good end. The caller closes the recorder."""
    recorder = Recorder(folder, capacity_bytes=1 << 26)
    done = run_program(recorder, code)
    assert done.returncode == 0, done.stderr
    return recorder, list(recorder.read())


def replayed(recorder: Recorder, mode: Mode = "ext4") -> tuple[Model, Blindness | None]:
    model = Model(recorder.base, mode).replay(recorder.read())
    return model, check_sight(recorder, model)
