"""Files that hold memory are their owner's alone by default; what is there keeps its mode; a mode can be asked for."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Message, open_store, private
from recollect.errors import Refused
from recollect.recall import open_recall
from recollect.recall.chroma_folder import Slot
from recollect.verify import engines

SAID = [Message("user", "my name is Xiao Li")]


@pytest.fixture(autouse=True)
def wide_umask() -> Iterator[None]:
    """Under which everything that nobody cares about is readable by all."""
    former = os.umask(0o022)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def readable_by_others(folder: Path) -> list[str]:
    """What others can reach: a private folder hides what is in it."""
    if mode(folder) & 0o077 == 0:
        return []
    found = [f"{folder} {mode(folder):o}"]
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            found += readable_by_others(path)
        elif mode(path) & 0o077 and not path.is_symlink() and stat.S_ISREG(path.stat().st_mode):
            found.append(f"{path} {mode(path):o}")
    return found


@pytest.mark.parametrize("policy", ["wal-full", "delete-full"])
async def test_a_new_memory_is_private(tmp_path: Path, policy: str) -> None:
    path, witness = tmp_path / "memory.db", tmp_path / "witness.json"
    async with open_store(f"sqlite:///{path}?policy={policy}", witness=witness) as store:
        await store.append("s", SAID)
        modes = {file.name: mode(file) for file in tmp_path.iterdir()}
        assert modes.keys() >= {"memory.db", "witness.json"}
        assert policy != "wal-full" or modes.keys() >= {"memory.db-wal", "memory.db-shm"}
        assert set(modes.values()) == {0o600}, modes


async def test_long_term_memory_and_its_index_are_private(tmp_path: Path) -> None:
    async with open_recall(f"sqlite:///{tmp_path}/memory.db", witness=tmp_path / "witness.json") as recall:
        await recall.remember("u", SAID, session="s", turn="t")
    assert {mode(file) for file in tmp_path.iterdir()} == {0o600}
    Slot.take(tmp_path / "new" / "index").fresh()
    assert readable_by_others(tmp_path / "new" / "index") == []


async def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path, witness = tmp_path / "memory.db", tmp_path / "witness.json"
    async with open_store(f"sqlite:///{path}", witness=witness) as store:
        await store.append("s", SAID)
    path.chmod(0o644)
    witness.chmod(0o640)
    async with open_store(f"sqlite:///{path}", witness=witness) as store:
        await store.append("s", SAID)
        assert mode(path) == mode(tmp_path / "memory.db-wal") == mode(tmp_path / "memory.db-shm") == 0o644
    assert mode(witness) == 0o640


@pytest.mark.parametrize(("asked", "files"), [(0o660, 0o660), (0o640, 0o640), (None, 0o644)])
async def test_it_can_be_widened(tmp_path: Path, asked: int | None, files: int) -> None:
    folder = tmp_path / "shared"
    private.make_folder(folder, asked)
    assert mode(folder) == files | (files & 0o444) >> 2
    async with open_store(
        f"sqlite:///{folder}/memory.db", witness=folder / "witness.json", file_mode=asked
    ) as store:
        await store.append("s", SAID)
        assert {mode(file) for file in folder.iterdir()} == {files}


@pytest.mark.parametrize("asked", [0o444, 0o777, 0o1600, -1, 0, 10**400, "640"])
def test_a_mode_that_is_none_is_refused(asked: int) -> None:
    with pytest.raises(Refused, match="file_mode: such as 0o600"):
        open_store("sqlite:///memory.db", file_mode=asked)


@pytest.mark.parametrize(
    ("given", "meant"), [("", 0o600), ("640", 0o640), ("0660", 0o660), ("umask", None), ("0o640", 0o640)]
)
def test_the_environment_says_it_for_commands(
    monkeypatch: pytest.MonkeyPatch, given: str, meant: int | None
) -> None:
    monkeypatch.setenv(private.VARIABLE, given)
    assert private.from_environment() == meant
    monkeypatch.setenv(private.VARIABLE, "rw-r-----")
    with pytest.raises(Refused, match="RECOLLECT_FILE_MODE: such as 600"):
        private.from_environment()


def test_nobody_else_here_opens_a_file_that_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a file drops every lock that the process has on it, so another thread has to wait for the close."""
    path, second_is_through = tmp_path / "memory.db", threading.Event()
    made = private.opener()

    def second() -> None:
        private.make_file(path)
        second_is_through.set()

    def opened_slowly(name: str, flags: int) -> int:
        descriptor = made(name, flags)
        threads.append(threading.Thread(target=second))
        threads[-1].start()
        assert not second_is_through.wait(0.2)
        return descriptor

    threads: list[threading.Thread] = []
    monkeypatch.setattr(private, "opener", lambda mode: opened_slowly)
    private.make_file(path)
    threads[0].join()
    assert second_is_through.is_set()


def recollect(*arguments: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "recollect", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    return done.stdout + done.stderr


def test_the_files_of_a_run(tmp_path: Path) -> None:
    command = (
        "verify",
        "sqlite",
        "--policy",
        "wal-full",
        "--fault",
        "kill-app",
        "--workload",
        "append",
        "--no-confirm",
    )
    reports = ("--json", "all.json", "--html", "page.html", "--junit", "junit.xml")
    said = recollect(*command, *reports, cwd=tmp_path)
    runs = sorted((tmp_path / "runs").iterdir())
    assert [mode(run) for run in runs] == [0o700], said
    files = [path for path in runs[0].rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"history.jsonl", "scenario.json", "results.json"}
    assert [path for path in files if mode(path) & 0o077] == []
    assert [mode(tmp_path / name) for name in reports[1::2]] == [0o600] * 3
    recollect(*command, "--out", "wide", cwd=tmp_path, RECOLLECT_FILE_MODE="umask")
    wide = tmp_path / "wide"
    assert mode(wide) == 0o755
    assert {mode(path) for path in wide.rglob("*.json*")} == {0o644}


@pytest.mark.parametrize("name", ["redis", "postgres", "sqlite", "chroma"])
def test_the_folder_of_an_engine(name: str) -> None:
    engine = engines.create(name)
    engine.start()
    try:
        folder = engine.folder  # type: ignore[attr-defined]
        reachable = readable_by_others(folder)
        # As root, the user that PostgreSQL runs as has to pass through; nobody sees what is there.
        assert [entry for entry in reachable if not entry.endswith(" 711")] == []
        assert not reachable or os.geteuid() == 0
    finally:
        engine.close()


def test_a_report_does_not_overwrite_a_database(tmp_path: Path) -> None:
    """`recollect audit sqlite:///memory.db --json memory.db` said "Nothing was changed", and the memory was gone."""
    file = tmp_path / "memory.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE a (b)")
    database.close()
    before = file.read_bytes()
    with pytest.raises(FileExistsError, match="It is a database, and is not overwritten"):
        private.write_artifact(file, "{}")
    assert file.read_bytes() == before


def test_a_full_disk_names_the_file() -> None:
    with pytest.raises(OSError, match="/dev/full"):
        private.write_artifact(Path("/dev/full"), "x" * 100)
