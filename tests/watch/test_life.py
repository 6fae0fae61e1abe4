"""The watch itself: bounded, quiet when all is well, alive after its own death, and heard by others."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect import Message, open_store
from recollect.errors import Refused
from recollect.verify.engines import Engine
from recollect.watch import CanaryMemory
from recollect.watch.metrics import serve
from recollect.watch.parts import PREFIX
from tests.audit.memories import STORES, Memory, memory_of
from tests.stores.redis_places import started
from tests.watch.beside import Beside, beside

MESSAGES = 8
"""Of a session of the canary; 60 in production."""


@pytest.fixture(params=STORES)
async def memory(
    request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path
) -> Memory:
    return await memory_of(request.param, engine_of, tmp_path)


async def test_it_is_quiet_and_bounded_beside_an_application(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.watch.canary.MESSAGES_MAX", MESSAGES)
    async with beside(memory.url, tmp_path / "watch.db") as watched, open_store(memory.url) as store:
        for number in range(3 * MESSAGES):
            if number % 10 == 0:
                await store.append("s", [Message("user", "of the application")])
                await store.forget("s")
            assert await watched.rounds(1) == []
        kept = {session: len(await store.history(session)) async for session in store.sessions(prefix=PREFIX)}
        assert set(kept) == set(watched.canary.sessions)
        assert max(kept.values()) <= MESSAGES
        assert sum(len(watched.memory.said_in(session)) for session in kept) <= 2 * MESSAGES
        assert (await memory.audit()).counts == {}
        removed = await watched.canary.clean_up()
        assert (removed.sessions, removed.messages) == (2, sum(kept.values()))
        assert [session async for session in store.sessions(prefix=PREFIX)] == []


async def test_two_watches_do_not_share_a_memory(tmp_path: Path) -> None:
    first = CanaryMemory(tmp_path / "watch.db", "redis://a")
    with pytest.raises(Refused, match="in use"):
        CanaryMemory(tmp_path / "watch.db", "redis://a")
    first.close()
    with pytest.raises(Refused, match="remembers redis://a"):
        CanaryMemory(tmp_path / "watch.db", "redis://b")
    CanaryMemory(tmp_path / "watch.db", "redis://a").close()


async def test_two_watches_beside_each_other(memory: Memory, tmp_path: Path) -> None:
    async with beside(memory.url, tmp_path / "1.db") as one, beside(memory.url, tmp_path / "2.db") as two:
        for _ in range(3):
            assert await one.rounds(1) + await two.rounds(1) == []


def running(url: str, file: Path, *words: str) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "recollect",
        "watch",
        url,
        "--memory",
        str(file),
        "--every",
        "0.05",
        *words,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def once(url: str, file: Path, *words: str) -> tuple[int, list[dict[str, object]]]:
    process = running(url, file, "--once", *words)
    said, errors = process.communicate(timeout=120)
    assert not errors or process.returncode in (2, 3), errors
    return process.returncode, [json.loads(line) for line in said.splitlines()]


async def test_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    """The first round makes it: a reader's first command is no alarm."""
    new = Beside(f"sqlite:///{tmp_path}/memory.db", tmp_path / "watch.db", patience_s=0.0)
    try:
        assert await new.rounds(1) == []
    finally:
        await new.close()


def test_the_command_survives_its_own_death(tmp_path: Path) -> None:
    """Killed again and again while it speaks, it neither accuses the engine nor forgets what it knew."""
    file, told = tmp_path / "watch.db", tmp_path / "told.json"
    tell = f"{sys.executable} -c \"import sys; open({str(told)!r}, 'a').write(sys.stdin.read())\""
    with started("redis@7", "aof-always") as engine:
        url = engine.endpoint.url
        process = running(url, file, "--patience", "60")
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "heard"
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        assert once(url, file)[0] == 0
        engine.stop()
        engine.wipe()
        engine.start()
        code, events = once(engine.endpoint.url, file, "--command", tell)
        assert code == 1
        alarms = [event for event in events if event["event"] == "alarm"]
        assert [alarm["name"] for alarm in alarms] == ["lost-after-restart"]
        assert json.loads(told.read_text()) == alarms[0]
        assert once(engine.endpoint.url, file)[0] == 0  # it is told once
        process = running(url, file)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
        assert process.returncode == 0
        cleaned = running(url, file, "--clean")
        assert cleaned.communicate(timeout=120)[0].startswith(
            "removed 1 session with 3 messages from the engine, and "
        )
        assert cleaned.returncode == 0
        assert not list(tmp_path.glob("watch.db*"))
    code, events = once(url, tmp_path / "other.db")
    assert code == 3


def test_mistakes_are_said(tmp_path: Path) -> None:
    for words in (
        ("nothing://here",),
        ("sqlite:///x.db", "--prometheus", "nowhere"),
        ("sqlite:///no-folder/x.db",),
    ):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "recollect",
                "watch",
                *words,
                "--once",
                "--memory",
                str(tmp_path / "m.db"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (2, 3), done
        assert "Traceback" not in done.stderr


async def test_prometheus(memory: Memory, tmp_path: Path) -> None:
    async with beside(memory.url, tmp_path / "watch.db") as watched:
        server = await serve(watched.watch.metrics, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def ask(path: str) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
            return answer

        assert "recollect_watch_up 1" in await ask("/metrics")
        watched.watch.slow_s = 0.0
        await watched.rounds(1)
        assert 'recollect_watch_alarms_total{name="slow"} 1' in await ask("/metrics")
        assert "404" in (await ask("/")).splitlines()[0]
        server.close()


async def test_an_engine_that_is_silent_for_a_while(tmp_path: Path) -> None:
    with started("redis@7", "aof-always") as engine:
        assert engine.endpoint.socket_url is not None
        async with beside(engine.endpoint.socket_url, tmp_path / "watch.db", patience_s=0.3) as watched:
            engine.stop()
            [alarm] = await watched.told()
            assert alarm.name == "unreachable"
            assert await watched.rounds(2) == []  # once
            engine.start()
            deadline = time.monotonic() + 60
            while not any(event["event"] == "over" for event in watched.events):
                await watched.rounds(1)
                assert time.monotonic() < deadline
