"""Ctrl-C at any moment of any command, once or twice, as a terminal sends it: to the whole group of processes.

Whatever the moment: the command ends, says no traceback, exits with a code that claims nothing, and leaves no process,
no temporary folder, no shared memory and no empty folder of results behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.attack.assault import Assault

import recollect
import recollect.sync
from recollect import exit_codes

END_TIMEOUT_S = 60.0
_POLL_S = 0.01
_ENOUGH = (exit_codes.HELD, exit_codes.INCONCLUSIVE, -signal.SIGINT, 128 + signal.SIGINT)
"""It was done already, nothing could be concluded, or it had not begun or was about to end."""
_BEGUN_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    takes_s: float
    """About how long it takes when nobody interrupts: moments are chosen within it."""


def commands(place: Path) -> list[Command]:
    """Each on small things of its own; `place` holds a finished run for those that read one."""
    run, cell = str(place / "finished"), str(next((place / "finished").glob("001*")))
    memory = f"sqlite:///{place / 'memory.db'}"
    return [
        Command(("verify", "sqlite", "redis", "--budget", "6s"), 8.0),
        Command(("verify", "postgres", "--fault", "power-loss", "--budget", "8s"), 8.0),
        Command(("explore", "sqlite", "--budget", "5s"), 6.0),
        Command(("replay", cell, "--times", "2"), 5.0),
        Command(("report", run, "--html", "page.html"), 2.0),
        Command(("doctor", memory), 1.0),
        Command(("engines",), 2.0),
        Command(("chat", "--memory", memory, "--port", str(_free_port()), "--index", "none"), 3.0),
    ]


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def attack(assault: Assault, program: tuple[str, ...] = (sys.executable, "-m", "recollect")) -> None:
    with _place() as place:
        prepare(place, program)
        while assault.goes_on("interrupts"):
            for command in commands(place):
                if assault.goes_on("interrupts"):
                    interrupt(assault, place, program, command)


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="recollect-attack-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def prepare(place: Path, program: tuple[str, ...]) -> None:
    """A finished run, and a memory that the doctor can look at."""
    words = ("verify", "sqlite", "--fault", "kill-app", "--budget", "10s", "--out", str(place / "finished"))
    subprocess.run([*program, *words], cwd=place, capture_output=True, check=False)
    with recollect.sync.open_store(f"sqlite:///{place / 'memory.db'}") as store:
        store.append("session", [recollect.Message("user", "hello")])


def interrupt(assault: Assault, place: Path, program: tuple[str, ...], command: Command) -> None:
    work, temporary = place / "work", place / "tmp"
    for folder in (work, temporary):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    after_s = assault.rng.uniform(0.0, command.takes_s)
    times = assault.rng.choice((1, 1, 2))
    told = f"{' '.join(command.words[:3])}, {times} × Ctrl-C after {after_s:.2f} s"
    with (place / "said").open("w+b") as said:
        process = subprocess.Popen(
            [*program, *command.words],
            cwd=work,
            env={**os.environ, "TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            # A script's background job has inherited that interrupts are ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        wait_until_begun(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        for _ in range(times):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(assault.rng.uniform(0.0, 0.5))
        try:
            status: int | None = process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
            process.kill()
            process.wait()
        said.seek(0)
        text = said.read().decode(errors="replace")
    assault.count("interrupts")
    assault.count(f"of {command.words[0]}")
    judge(assault, told, status, text)
    look_around(assault, told, work, temporary, process.pid)


def wait_until_begun(process: subprocess.Popen[bytes]) -> None:
    """Until our own code is reached, interrupts are the interpreter's affair. The first thing that `recollect.program`
    does is to let them end the process, which the kernel tells."""
    give_up = time.monotonic() + _BEGUN_TIMEOUT_S
    caught_before = False
    while process.poll() is None and time.monotonic() < give_up:
        with contextlib.suppress(OSError, StopIteration):
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
            caught = bool(mask & 1 << (signal.SIGINT - 1))
            if caught_before and not caught:
                return
            caught_before = caught
        time.sleep(_POLL_S / 10)


def judge(assault: Assault, told: str, status: int | None, text: str) -> None:
    if status is None:
        assault.found(f"{told}: did not end within {END_TIMEOUT_S:g} s")
        return
    assault.expect(status in _ENOUGH, f"{told}: exit code {status}\n{text[-1500:]}")
    assault.expect("Traceback" not in text, f"{told}: a traceback\n{text[-3000:]}")


def look_around(assault: Assault, told: str, work: Path, temporary: Path, session: int) -> None:
    """Nothing may be left, at the latest when what cleans up after a killed run has had its time."""
    give_up = time.monotonic() + END_TIMEOUT_S
    while (left := _left(work, temporary, session)) and time.monotonic() < give_up:
        time.sleep(_POLL_S)
    assault.expect(not left, f"{told}: left behind: {', '.join(left)}")
    for pid in _members(session, temporary):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _left(work: Path, temporary: Path, session: int) -> list[str]:
    found = [f"process {pid}" for pid in _members(session, temporary)]
    found += [str(path) for path in temporary.iterdir()]
    found += [f"{path} is empty" for path in work.rglob("*") if path.is_dir() and not any(path.iterdir())]
    return found


def _members(session: int, temporary: Path) -> list[int]:
    """Processes of the command's session, and those in sessions of their own that have its temporary folder."""
    wanted = f"TMPDIR={temporary}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            ours = int(fields[3]) == session or wanted in (entry / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if ours and fields[0] not in "ZX":
            found.append(int(entry.name))
    return found
