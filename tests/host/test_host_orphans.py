"""The runner is killed in the middle, in every way there is: no process, no folder is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.verify import engines
from recollect.verify.host import folder, processes
from recollect.verify.host.waiting import wait_until
from recollect.verify.host.warden import descendants_of

RUNNER = Path(__file__).with_name("runner.py")
DEADLINE_S = 60.0


class Runner:
    def __init__(self, specs: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(RUNNER), specs],
            stdout=subprocess.PIPE,
            text=True,
            # A suite that runs in the background of a script has inherited that interrupts are ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.folder = Path(told["folder"])
        self.warden: int = told["warden"]
        self.processes = [self.warden, *descendants_of(self.warden)]

    def end(self, *signals: tuple[int, int]) -> None:
        for pid, number in signals:
            os.kill(pid, number)
        self.process.wait(timeout=DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def nothing_runs(self) -> bool:
        return not any(_runs(pid) for pid in self.processes) and not folder.processes_in(self.folder)


@pytest.fixture
def start_runner() -> Iterator[Callable[[str], Runner]]:
    """Runners that do not outlive their test, also when it fails."""
    started: list[Runner] = []

    def start(specs: str) -> Runner:
        started.append(Runner(specs))
        return started[-1]

    yield start
    for runner in started:
        if runner.process.poll() is None:
            runner.end((runner.process.pid, signal.SIGKILL))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_runner_that_was_ended(
    start_runner: Callable[[str], Runner], number: int
) -> None:
    runner = start_runner("redis,postgres,sqlite,chroma")
    assert len(runner.processes) > 6, "the servers, and PostgreSQL's own children"
    assert runner.folder.is_dir()
    runner.end((runner.process.pid, number))
    wait_until(runner.nothing_runs, DEADLINE_S, "processes were left")
    wait_until(lambda: not runner.folder.exists(), DEADLINE_S, "the folder was left")


def test_servers_follow_their_warden_and_the_next_run_sweeps_the_folder(
    start_runner: Callable[[str], Runner],
) -> None:
    runner = start_runner("redis,postgres")
    os.kill(runner.warden, signal.SIGKILL)
    # While the runner lives, nobody else may sweep: what ends the servers is the death of their parent.
    wait_until(runner.nothing_runs, DEADLINE_S, "servers outlived their warden")
    assert runner.folder.is_dir(), "nobody is left to remove it"
    folder.sweep()
    assert runner.folder.is_dir(), "its owner lives"
    runner.end((runner.process.pid, signal.SIGKILL))
    folder.sweep()
    # Another run on this machine may have been faster, and still be at it.
    wait_until(lambda: not runner.folder.exists(), DEADLINE_S, "the folder was left")


def test_a_sweep_leaves_living_runs_alone(start_runner: Callable[[str], Runner]) -> None:
    runner = start_runner("redis")
    folder.sweep()
    assert runner.folder.is_dir()
    assert all(_runs(pid) for pid in runner.processes)


def test_an_engine_outlives_the_thread_that_started_it() -> None:
    """The parent-death signal follows the forking thread; the warden has only one, and it stays."""
    engine = engines.create("redis")
    thread = threading.Thread(target=engine.start)
    thread.start()
    thread.join()
    try:
        assert engine.settings()["appendonly"] == "yes"
    finally:
        engine.close()


def test_a_forked_child_does_not_end_its_parents_engines() -> None:
    engine = engines.create("redis")
    engine.start()
    try:
        child = os.fork()
        if child == 0:
            ours = processes._channel is None and folder._folder is None
            os._exit(0 if ours else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert engine.alive()
    finally:
        engine.close()


@pytest.fixture
def launch(tmp_path: Path) -> Callable[[str], processes.OwnedProcess]:
    def start(script: str) -> processes.OwnedProcess:
        argv = ["/bin/sh", "-c", script]
        return processes.start(processes.Launch(argv, tmp_path / "log", dict(os.environ)))

    return start


def test_kill_takes_the_whole_tree_and_reaps_it(launch: Callable[[str], processes.OwnedProcess]) -> None:
    process = launch("(sleep 1000 & sleep 1000 & wait) & sleep 1000 & wait")
    wait_until(lambda: len(descendants_of(process.pid)) == 4, DEADLINE_S, "the tree did not grow")
    members = [process.pid, *descendants_of(process.pid)]
    process.kill()
    assert not any(Path(f"/proc/{pid}").exists() for pid in members), "gone, not even zombies"
    assert process.exit_status() == -signal.SIGKILL


def test_kill_takes_children_that_fork_all_the_time(launch: Callable[[str], processes.OwnedProcess]) -> None:
    process = launch("while :; do sleep 1000 & done")
    wait_until(lambda: len(descendants_of(process.pid)) > 20, DEADLINE_S, "the tree did not grow")
    before = set(descendants_of(processes.warden_pid()))
    process.kill()
    assert not [pid for pid in before if _runs(pid) and pid in descendants_of(process.pid)]
    left = [pid for pid in descendants_of(processes.warden_pid()) if _command(pid).startswith("sleep")]
    assert left == []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_kill_after_the_root_died_by_itself_takes_its_orphans(
    launch: Callable[[str], processes.OwnedProcess],
) -> None:
    """A server that a fault kills from inside leaves children behind, which hold its files."""
    process = launch("sleep 1000 & sleep 1000 & kill -9 $$")
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    process.kill()
    assert [pid for pid in descendants_of(processes.warden_pid()) if _command(pid).startswith("sleep")] == []


def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next(
    launch: Callable[[str], processes.OwnedProcess],
) -> None:
    """Ctrl-C between a request and its answer."""
    process = launch("exit 3")
    process.wait(DEADLINE_S)
    channel = processes._current()
    stray = {"op": "poll", "request": -1, "pid": 0}
    channel._socket.sendall(json.dumps(stray).encode() + b"\n")
    assert process.exit_status() == 3


def test_a_program_that_is_not_there_is_an_error_and_no_process(tmp_path: Path) -> None:
    with pytest.raises(engines.EngineError, match="No such file or directory"):
        processes.start(processes.Launch(["/recollect/no-such-program"], tmp_path / "log", {}))


def test_an_exit_status_is_reported(launch: Callable[[str], processes.OwnedProcess]) -> None:
    assert launch("exit 3").wait(DEADLINE_S) == 3
