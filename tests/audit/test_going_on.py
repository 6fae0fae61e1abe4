"""An audit is stopped and goes on, keeps its pace, needs no more memory for more messages, and tells what it found."""

import asyncio
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recollect import cli, open_store
from recollect.audit import AuditProgress, audit
from recollect.audit.pace import Pace
from recollect.errors import Refused
from recollect.verify.engines import Engine
from tests.audit.memories import STORES, Memory, memory_of, said, written


@pytest.fixture(params=STORES)
async def memory(
    request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path
) -> Memory:
    made = await memory_of(request.param, engine_of, tmp_path)
    async with open_store(made.url) as store:
        for number in range(30):
            await store.append(f"session-{number}", said("a", "b"))
    return made


class Stopped(Exception):
    pass


async def test_it_goes_on_where_it_was_stopped(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"recollect.audit.{memory.kind}.BATCH", 4)
    file = tmp_path / "progress.json"
    seen: list[int] = []

    def stop(progress: AuditProgress, total: int | None) -> None:
        if progress.sessions == 20:
            raise Stopped

    def see(progress: AuditProgress, total: int | None) -> None:
        seen.append(progress.sessions)

    with pytest.raises(Stopped):
        await memory.audit(resume=file, told=stop)
    saved = json.loads(file.read_bytes())
    assert saved["cursor"]
    assert not saved["done"]
    report = await memory.audit(resume=file, told=see)
    assert report.elapsed_s >= round(saved["elapsed_s"], 3)  # both parts of it
    assert saved["elapsed_s"] > 0
    assert min(seen) > 8  # not from the beginning
    assert (report.sessions, report.messages) == (30, 60)
    assert report.counts == {}
    assert (await memory.audit(resume=file)).sessions == 30  # that one was done: this is another one


async def test_what_was_found_before_the_stop_is_in_the_report(
    engine_of: Callable[[str], Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.audit.sqlite.BATCH", 1)
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
    memory.sqlite("DELETE FROM recollect_messages WHERE place = ?", 1 << 32 | 1)
    file = tmp_path / "progress.json"

    def stop(progress: AuditProgress, total: int | None) -> None:
        assert total == 2
        if progress.sessions == 2:
            raise Stopped

    with pytest.raises(Stopped):
        await memory.audit(resume=file, told=stop)
    report = await memory.audit(resume=file)
    assert report.counts == {"half-turn": 1}
    assert (report.sessions, report.status) == (2, "violated")


async def test_a_file_that_is_not_its_own(memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    file.write_text("{}")
    with pytest.raises(Refused, match="not the file of an audit"):
        await memory.audit(resume=file)
    file.write_text(json.dumps({"identity": "another", "place": ""}))
    with pytest.raises(Refused, match="another store"):
        await memory.audit(resume=file)
    with pytest.raises(Refused, match="does not exist"):
        await memory.audit(resume=tmp_path / "no-such-folder" / "file")


async def test_the_pace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own: 100 records a second."""
    now = 0.0
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += seconds

    monkeypatch.setattr("recollect.audit.pace.time.monotonic", lambda: now)
    monkeypatch.setattr("recollect.audit.pace.asyncio.sleep", sleep)
    pace = Pace(100.0)
    for _ in range(20):
        await pace.spend(50)
    assert now == pytest.approx(10.0, abs=0.6)
    waits.clear()
    unbounded = Pace(None)
    await unbounded.spend(10**9)
    assert sum(waits) == 0


async def test_memory_does_not_grow_with_the_messages(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    peaks = []
    for count in (2_000, 20_000):
        memory = await memory_of("sqlite", engine_of, tmp_path)
        async with open_store(memory.url, durability="written") as store:
            for _ in range(count // 1_000):
                await store.append("s", said(*["word" * 20] * 1_000))
        await memory.audit()  # whatever is imported once
        tracemalloc.start()
        try:
            assert (await memory.audit()).messages == count
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def ran(*words: str) -> Any:
    return CliRunner().invoke(cli.build(list(words)), ["audit", *words])


async def test_the_command(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
        await store.append("<b>\x1b[2J", said("a", "b"), turn="t")
    page, document = tmp_path / "audit.html", tmp_path / "audit.json"
    options = ("--html", str(page), "--json", str(document))
    done = await asyncio.to_thread(ran, memory.url, *options)
    assert done.exit_code == 0, done.output
    assert "everything" in done.output
    told = json.loads(document.read_bytes())
    assert (told["status"], told["messages"], told["sessions"]) == ("held", 12, 3)
    memory.sqlite("DELETE FROM recollect_messages WHERE place = ?", 3 << 32 | 1)
    done = await asyncio.to_thread(ran, memory.url, *options, "--rate", "0")
    assert done.exit_code == 1
    assert "half-turn: 1" in done.output
    assert "\x1b[2J" not in done.output
    [finding] = json.loads(document.read_bytes())["findings"]
    assert (finding["name"], finding["session"], finding["first"]) == ("half-turn", "<b>\x1b[2J", 1)
    text = page.read_text()
    assert "half-turn" in text
    assert "<b>" not in text
    assert "\x1b" not in text


async def test_exit_codes(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    async def code(*words: str) -> int:
        found = await asyncio.to_thread(ran, *words)
        return int(found.exit_code)

    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
    assert await code(memory.url) == 0
    risky = f"{memory.url}?policy=wal-normal"
    assert await code(risky) == 0
    assert await code(risky, "--strict") == 1
    assert await code("sqlite:///no-such-file.db") == 2
    assert await code("nothing://here") == 2
    assert await code("redis://127.0.0.1:1") == 3
    (tmp_path / "not.db").write_text("no database at all, and long enough to have a header of one" * 10)
    assert await code(f"sqlite:///{tmp_path}/not.db") == 3
    assert await code(memory.url, "--rate", "100000") == 0
    with pytest.raises(Refused):
        await audit("chroma:///folder")


async def test_one_is_not_counted_as_several(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await store.append("one", said("a"), turn="t")
    done = await asyncio.to_thread(ran, memory.url)
    assert ": 1 message of 1 session in " in done.output


@pytest.mark.parametrize(("damaged", "code"), [(False, 0), (True, 1)])
async def test_a_reader_who_has_gone_changes_no_exit_code(
    engine_of: Callable[[str], Engine], tmp_path: Path, *, damaged: bool, code: int
) -> None:
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
    if damaged:
        memory.sqlite("DELETE FROM recollect_messages WHERE place = ?", 1 << 32 | 1)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "recollect", "audit", memory.url],
            stdout=gone,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (code, b"")
