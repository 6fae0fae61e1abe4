"""What an operator may give a watch by mistake: another program's file, a command that hangs, a disk that is full."""

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect import Message, cli, open_store, sync
from recollect.errors import CannotOpen
from recollect.watch import Alarm, CanaryMemory
from recollect.watch.memory import MemoryFailed
from tests.watch.beside import Beside

ADDRESS = "redis://a"


def said_by(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.build(["watch"]), ["watch", *arguments])
    return done.exit_code, done.output


async def test_the_watched_memory_is_not_taken_for_its_own(tmp_path: Path) -> None:
    """`--clean` deletes the watch's own memory: with the store's file given, that was the store."""
    file = tmp_path / "memory.db"
    url = f"sqlite:///{file}"
    async with open_store(url) as store:
        await store.append("s", [Message("user", "remember me")])
    before = file.read_bytes()
    for more in ("--once", "--clean"):
        code, told = await asyncio.to_thread(said_by, url, "--memory", str(file), more)
        assert (code, "not the memory of a watch; name another file" in told) == (2, True), told
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["memory.db"]


async def test_cleaning_with_another_memory_says_so_and_makes_nothing(tmp_path: Path) -> None:
    """A mistyped --memory was made, found to be empty and removed: the canary's sessions stayed, with exit code 0."""
    url = f"sqlite:///{tmp_path}/memory.db"
    async with open_store(url):
        pass
    before = sorted(tmp_path.iterdir())
    code, told = await asyncio.to_thread(said_by, url, "--memory", str(tmp_path / "mistyped.db"), "--clean")
    assert (code, "there is no such file; name the watch's memory with --memory" in told) == (2, True), told
    assert sorted(tmp_path.iterdir()) == before


async def test_cleaning_an_engine_without_its_messages_says_so(tmp_path: Path) -> None:
    url, memory = f"sqlite:///{tmp_path}/memory.db", tmp_path / "watch.db"
    async with open_store(url):
        pass
    CanaryMemory(memory, url).close()
    code, told = await asyncio.to_thread(said_by, url, "--memory", str(memory), "--clean")
    assert (code, told) == (0, f"the engine had none of its messages; removed {memory}\n")


@pytest.mark.parametrize(
    "schema", ["CREATE TABLE notes (id, text)", "CREATE TABLE notes (name, value); CREATE TABLE other (a)"]
)
def test_another_program_s_notes_are_not(tmp_path: Path, schema: str) -> None:
    file = tmp_path / "notes.db"
    other = sqlite3.connect(file)
    other.executescript(schema)
    other.close()
    before = file.read_bytes()
    with pytest.raises(CannotOpen, match="not the memory of a watch"):
        CanaryMemory(file, ADDRESS)
    assert file.read_bytes() == before


def test_nor_is_a_text_a_folder_or_a_pipe(tmp_path: Path) -> None:
    text, folder, pipe = tmp_path / "text", tmp_path / "folder", tmp_path / "pipe"
    text.write_text("diary " * 1000)
    folder.mkdir()
    os.mkfifo(pipe)
    for path, why in ((text, "not the memory"), (folder, "directory"), (pipe, "regular file")):
        with pytest.raises(CannotOpen, match=why):
            CanaryMemory(path, ADDRESS)
    assert text.read_text() == "diary " * 1000


def test_a_memory_whose_making_was_cut_off_is_finished(tmp_path: Path) -> None:
    """A canary killed while it made the file left it empty, or with its first table."""
    for number, schema in enumerate(
        ("", "CREATE TABLE said (session TEXT, sequence INTEGER, id TEXT, acknowledged_at REAL)")
    ):
        file = tmp_path / f"{number}.db"
        file.touch()
        begun = sqlite3.connect(file)
        begun.executescript(schema)
        begun.close()
        CanaryMemory(file, ADDRESS).close()
        CanaryMemory(file, ADDRESS).close()


def test_a_full_disk_is_no_fault_of_the_engine(tmp_path: Path) -> None:
    memory = CanaryMemory(tmp_path / "watch.db", ADDRESS)
    memory._file.execute("PRAGMA max_page_count = 1")
    with pytest.raises(MemoryFailed, match=r"watch\.db: database or disk is full"):
        memory.set("note", "x" * 1_000_000)
    memory.close()


def test_a_command_that_is_not_there_is_noticed_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    for command, why in (("/nowhere/notify --now", "no such program"), ("notify 'x", "No closing quotation")):
        code, told = said_by(url, "--memory", str(tmp_path / "watch.db"), "--command", command, "--once")
        assert code == 2
        assert "--command" in told
        assert why in told
    assert list(tmp_path.iterdir()) == []


def test_a_replica_is_of_the_same_engine(tmp_path: Path) -> None:
    code, told = said_by("redis://127.0.0.1:1", "--replica", "postgresql://127.0.0.1:1", "--once")
    assert code == 2
    assert "--replica postgresql://127.0.0.1:1 is of another engine" in told


async def test_a_command_that_hangs_does_not_blind_the_watch(tmp_path: Path) -> None:
    """Its rounds go on meanwhile; the commands are run one after the other."""
    gate, told = tmp_path / "gate", tmp_path / "told"
    script = f'read line; until [ -e "{gate}" ]; do sleep 0.05; done; echo "$line" >> "{told}"'
    watched = Beside(f"sqlite:///{tmp_path}/memory.db", tmp_path / "watch.db", command=["sh", "-c", script])
    try:
        async with asyncio.timeout(25):  # less than a command may take
            await watched.watch._report([Alarm(name="deleted", sentence="first")])
            await watched.watch._report([Alarm(name="deleted", sentence="second")])
            assert await watched.rounds(2) == []
        assert not told.exists()
        gate.touch()
        await watched.watch.called()
    finally:
        await watched.close()
    assert [("first" in line, "second" in line) for line in told.read_text().splitlines()] == [
        (True, False),
        (False, True),
    ]


async def test_a_command_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.watch.watching.COMMAND_S", 0.1)
    watched = Beside(f"sqlite:///{tmp_path}/memory.db", tmp_path / "watch.db", command=["sleep", "600"])
    try:
        await watched.watch._report([Alarm(name="deleted", sentence="x")])
        await watched.watch.called()
    finally:
        await watched.close()
    failed = [event["sentence"] for event in watched.events if event["event"] == "command-failed"]
    assert failed == ["sleep took longer than 0.1 s and was ended"]


def test_a_file_that_was_never_seen_is_mistyped_and_one_that_is_gone_is_an_alarm(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    once = ("--memory", str(tmp_path / "watch.db"), "--once")
    code, told = said_by(url, *once)
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "there is no such file" in told
    with sync.open_store(url) as store:
        store.append("s", [Message("user", "hello")])
    assert said_by(url, *once)[0] == 0
    for left in tmp_path.glob("memory.db*"):
        left.unlink()
    code, told = said_by(url, *once)
    assert code == 1, told
