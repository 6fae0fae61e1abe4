"""Two runs at once: each has a folder of its own, and nobody's histories are written over or removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.verify import run_folder
from recollect.verify.run_folder import FolderInUse
from tests.providers import foreign

TIMEOUT_S = 120.0
AT_ONCE = 8


def together(program: str, *arguments: str, count: int = AT_ONCE) -> Iterator[subprocess.Popen[str]]:
    """Processes that are all ready before any of them begins: each waits for the end of its standard input."""
    ready = f"import sys\nprint('ready', flush=True)\nsys.stdin.read()\n{program}"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ready, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    yield from started


def outputs(program: str, *arguments: str) -> list[str]:
    said = []
    for process in together(program, *arguments):
        out, error = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, error
        said.append(out.strip())
    return said


MAKE = """
from pathlib import Path
from recollect.verify import run_folder
print(run_folder.new(Path(sys.argv[1]), "20250101-000000-seed7"))
"""


def test_runs_of_the_same_second_and_seed_have_folders_of_their_own(tmp_path: Path) -> None:
    made = outputs(MAKE, str(tmp_path / "runs"))
    assert len(set(made)) == AT_ONCE
    assert all(Path(path).is_dir() for path in made)


TAKE_TURNS = """
import os
from pathlib import Path
from recollect.verify import run_folder
folder, refused, taken = Path(sys.argv[1]), 0, 0
for _ in range(200):
    try:
        with run_folder.in_use(folder):
            taken += 1
            os.close(os.open(folder / "alone", os.O_CREAT | os.O_EXCL))
            os.unlink(folder / "alone")
    except run_folder.FolderInUse:
        refused += 1
print(taken, refused)
"""


def test_a_folder_is_never_used_by_two_runs_at_once(tmp_path: Path) -> None:
    counts = [tuple(map(int, line.split())) for line in outputs(TAKE_TURNS, str(tmp_path))]
    assert sum(taken for taken, _ in counts) > 0
    assert {taken + refused for taken, refused in counts} == {200}


HOLD = """
from pathlib import Path
from recollect.verify import run_folder
run_folder.join(Path(sys.argv[1]), sys.argv[2])
print("in", flush=True)
import signal
signal.pause()
"""


def test_the_processes_of_one_run_share_its_folder_and_a_killed_run_leaves_it_free(tmp_path: Path) -> None:
    processes = list(together(HOLD, str(tmp_path), "one run", count=3))
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "in\n"
        with pytest.raises(
            FolderInUse, match="is in use by another run: wait until it ends, or choose another"
        ):
            run_folder.join(tmp_path, "another run")
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=TIMEOUT_S)
    os.close(run_folder.join(tmp_path, "another run"))


VERIFY = """
import time
time.strftime = lambda *form: "20250101-000000"
from recollect.cli import main
sys.argv = ["recollect", "verify", "sqlite", "--seed", "7", "--fault", "kill-app", "--policy", "wal-full"]
main()
"""


def test_two_verifications_that_start_together_both_come_to_their_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for process in together(VERIFY, count=2):
        _, error = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, error
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert folders == ["20250101-000000-seed7", "20250101-000000-seed7-2"]
    for folder in folders:
        again = subprocess.run(
            [sys.executable, "-m", "recollect", "report", f"runs/{folder}", "--json", "-"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        cells = json.loads(again.stdout)["cells"]
        assert {cell["status"] for cell in cells} == {"held"}
        assert cells[0]["acked"] > 0
        assert cells[0]["history"].startswith(f"runs/{folder}/")


@pytest.mark.parametrize("command", [["verify", "sqlite", "--fault", "kill-app"], ["explore", "sqlite"]])
def test_a_folder_that_another_run_writes_to_is_refused(command: list[str], tmp_path: Path) -> None:
    with run_folder.in_use(tmp_path / "mine"):
        before = foreign.folder(tmp_path)
        done = subprocess.run(
            [sys.executable, "-m", "recollect", *command, "--out", str(tmp_path / "mine")],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert "mine is in use by another run: wait until it ends" in done.stderr.replace("\n", " ")
        assert foreign.folder(tmp_path) == before


# ---- sessions of pytest


def session(parent: Path, at: int) -> Path:
    """An old one, whose process has ended."""
    path = parent / f"20250101-{at:06d}-{at:016x}-seed7"
    os.close(run_folder.join(path, path.name))
    (path / "history.jsonl").write_text("{}")
    return path


def test_old_sessions_go_and_those_that_still_run_stay(tmp_path: Path) -> None:
    sessions = [session(tmp_path, at) for at in range(6)]
    running = run_folder.join(sessions[1], sessions[1].name)
    try:
        run_folder.forget_old_sessions(tmp_path, kept=3)
        assert sorted(tmp_path.iterdir()) == [sessions[1], *sessions[3:]]
    finally:
        os.close(running)


def test_the_name_of_a_session_is_known_as_one_and_no_other_s(tmp_path: Path) -> None:
    names = [run_folder.session_name(seed) for seed in (7, 7, -7)]
    assert len(set(names)) == 3
    assert all(run_folder._SESSION_NAME.fullmatch(name) for name in names)


@given(
    st.one_of(st.from_regex(run_folder._SESSION_NAME, fullmatch=True), st.just("the-seed-vault")),
    st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=50)),
)
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_folders_of_others_stay(tmp_path: Path, name: str, said: str | None) -> None:
    theirs = tmp_path / name
    theirs.mkdir(exist_ok=True)
    if said is not None and said != name:
        (theirs / run_folder._LOCK_FILE).write_text(said)
    (theirs / "precious").write_text("precious")
    before = foreign.folder(tmp_path)
    run_folder.forget_old_sessions(tmp_path, kept=1)
    assert foreign.folder(tmp_path) == before


def test_a_session_that_was_renamed_or_copied_to_be_kept_stays(tmp_path: Path) -> None:
    session(tmp_path, 1).rename(tmp_path / "20250101-000001-00000000000000ff-seed7")
    (tmp_path / "20250101-000002-0000000000000002-seed7").symlink_to(session(tmp_path / "elsewhere", 2))
    session(tmp_path, 3)
    before = foreign.folder(tmp_path)
    run_folder.forget_old_sessions(tmp_path, kept=1)
    assert foreign.folder(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="a small filesystem of our own needs root")
def test_a_full_disk_under_the_runs_hides_no_verdict(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=36k", "none", str(small)], check=False).returncode
        != 0
    ):
        pytest.skip("mount is not permitted here")
    try:
        asked = "verify sqlite --fault kill-engine --fault restart --policy wal-full --workers 1 --budget 60s"
        done = subprocess.run(
            [sys.executable, "-m", "recollect", *asked.split(), "--out", str(small / "run")],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
    assert done.returncode == 3, done.stderr
    assert "what happened could not be written: [Errno 28] No space left on device" in done.stdout
    assert "Traceback" not in done.stderr
    assert "results.json: No space left on device; the verdicts are told, but not saved" in done.stderr
