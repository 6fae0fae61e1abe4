"""A program that does to the preloaded libraries all at once what an engine does to them now and then: `stress.c`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from recollect.verify.disk.prestart import Template
from recollect.verify.host.waiting import wait_until

SOURCE = Path(__file__).with_name("stress.c")
MODES = ("fork", "signal", "vfork", "spawn", "exit")
TIMEOUT_S = 120.0


def build(compiler: str, to: Path, flags: Sequence[str] = ()) -> Path:
    """The program, compiled to this path."""
    subprocess.run([compiler, "-O1", "-g", *flags, "-o", str(to), str(SOURCE), "-lpthread"], check=True)
    return to


def run(
    program: Path, mode: str, *, children: int, threads: int, folder: Path, env: Mapping[str, str]
) -> str:
    """What was wrong, in the program's own words; empty if nothing was. It works in `folder`."""
    command = [str(program), mode, str(children), str(threads)]
    # A group of its own: what hangs is ended with all that it has started.
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            said, complaint = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, complaint = process.communicate()
            return f"{shlex.join(command)}: hangs\n{complaint.strip()}"
    expected = f"{children} ended, 0 hung"
    if process.returncode == 0 and said.strip() == expected:
        return ""
    return f"{shlex.join(command)}: status {process.returncode}, {said.strip()}\n{complaint.strip()}"


def copy_status(template: Template) -> int:
    """Start a copy of a prestarted program, wait for its end, and return its exit status."""
    copy = template.copy()
    wait_until(lambda: copy.exit_status() is not None, TIMEOUT_S, "a copy of the template did not end")
    status = copy.exit_status()
    assert status is not None
    return status
