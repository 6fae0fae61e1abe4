"""Export and import: from each engine to each other, cut short, changed, stopped in the middle, and run again."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recollect import Message, Refused, Store, Unreadable, open_store
from recollect.cli import build
from recollect.transfer import PORTION, Moved, check_file, export_lines, import_file
from recollect.verify import engines

ENGINES = {"sqlite": "wal-full", "redis": "aof-everysec", "postgres": "default"}
ODD = ["a/b", "日本", "\ud800", "new\nline", '"quoted"']


@pytest.fixture(scope="module", params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    engine = engines.create(request.param, ENGINES[request.param])
    try:
        yield request.param, engine.start().url
    finally:
        engine.close()


async def filled(store: Store) -> None:
    for number, name in enumerate(ODD):
        await store.append(name, [Message("user", f"{number}\n\ud800", metadata={"n": number})])
    await store.append("large", [Message("user", str(n)) for n in range(2 * PORTION + 7)])
    await store.append("changed", [Message("user", str(n), extra={"x": [n]}, schema=9) for n in range(5)])
    await store.retract("changed", 2)
    await store.annotate("changed", {"title": "\ud800"})
    await store.annotate("metadata alone", {"a": 1})
    await store.append("forgotten", [Message("user", "gone")])
    await store.forget("forgotten")


async def written(store: Store, path: Path, prefix: str | None = None) -> Moved:
    moved = Moved()
    path.write_bytes(b"".join([line async for line in export_lines(store, moved, prefix)]))
    return moved


async def content(store: Store) -> dict[str, Any]:
    return {
        name: ([item.message for item in await store.history(name)], (await store.describe(name)).metadata)
        async for name in store.sessions()
    }


async def imported(store: Store, path: Path) -> Moved:
    check_file(path)
    return [moved async for moved in import_file(store, path)][-1]


async def test_there_and_back(server: tuple[str, str], tmp_path: Path) -> None:
    """SQLite → the server → SQLite: the same sessions, messages and metadata."""
    name, url = server
    if name == "redis":
        url += f"?prefix={uuid.uuid4().hex}"
    async with open_store(f"sqlite:///{tmp_path}/one.db") as one:
        await filled(one)
        first = await written(one, tmp_path / "one.jsonl")
        assert first == Moved(len(ODD) + 3, len(ODD) + 2 * PORTION + 7 + 4, 0)
        wanted = await content(one)
    async with open_store(url) as middle:
        assert await imported(middle, tmp_path / "one.jsonl") == first
        assert await content(middle) == wanted
        assert await imported(middle, tmp_path / "one.jsonl") == first, "again stores nothing"
        assert await content(middle) == wanted
        await written(middle, tmp_path / "two.jsonl")
    async with open_store(f"sqlite:///{tmp_path}/two.db") as other:
        assert await imported(other, tmp_path / "two.jsonl") == first
        assert await content(other) == wanted


async def test_one_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    async with open_store(f"sqlite:///{tmp_path}/one.db") as one:
        await filled(one)
        await written(one, path)
        wanted = await content(one)
    for stop_after in range(1, len(ODD) + 4):  # as many appends as there are, but one
        async with open_store(f"sqlite:///{tmp_path}/{stop_after}.db") as other:
            append, calls = other.append, 0

            async def failing(
                *arguments: Any, append: Any = append, limit: int = stop_after, **named: Any
            ) -> Any:
                nonlocal calls
                calls += 1
                if calls > limit:
                    raise ConnectionResetError
                return await append(*arguments, **named)

            other.append = failing  # type: ignore[method-assign]
            with pytest.raises(ConnectionResetError):
                await imported(other, path)
            other.append = append  # type: ignore[method-assign]
            await imported(other, path)
            assert await content(other) == wanted


async def test_a_file_that_is_not_whole_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path, broken = tmp_path / "memory.jsonl", tmp_path / "broken.jsonl"
    async with open_store(f"sqlite:///{tmp_path}/one.db") as one:
        await one.append("a", [Message("user", "hello"), Message("user", "world")])
        await one.append("b", [Message("user", "hello")])
        await written(one, path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert check_file(path) == Moved(2, 3, 0)
    cases = [whole[:cut] for cut in range(0, len(whole), 7)]
    cases += [b"".join(lines[:at] + lines[at + 1 :]) for at in range(len(lines))]
    cases += [b"".join([*lines[:at], lines[at], *lines[at:]]) for at in range(len(lines))]
    ends = [at for at, line in enumerate(lines) if line.startswith(b'{"end"')]
    cases += [b"".join(lines[:1] + lines[ends[0] + 1 :]), b"".join(lines[: ends[0] + 1] + lines[-1:])]
    cases += [whole.replace(b"hello", b"hallo", 1), whole.replace(b'"format":1', b'"format":2')]
    cases += [b"[]\n", b"{}\n", b"not JSON\n", b"[" * 10_000 + b"\n", b'{"recollect":1}\n']
    async with open_store(f"sqlite:///{tmp_path}/other.db") as other:
        for case in cases:
            broken.write_bytes(case)
            with pytest.raises(Unreadable):
                await imported(other, broken)
        assert await content(other) == {}


async def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    async with open_store(f"sqlite:///{tmp_path}/one.db") as one:
        await one.append("a", [Message("user", "from the file")])
        await written(one, path)
    async with open_store(f"sqlite:///{tmp_path}/other.db") as other:
        await other.append("a", [Message("user", "mine")])
        with pytest.raises(Refused, match="other content"):
            await imported(other, path)
        assert [
            item.message.text for item in await other.history("a") if isinstance(item.message, Message)
        ] == ["mine"]


async def run(*arguments: str) -> Result:
    """On a thread, because it runs an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, build(list(arguments)), list(arguments))


async def test_the_commands(tmp_path: Path) -> None:
    url, other, path = (
        f"sqlite:///{tmp_path}/one.db",
        f"sqlite:///{tmp_path}/other.db",
        tmp_path / "memory.jsonl",
    )
    async with open_store(url) as one:
        await filled(one)
        wanted = await content(one)
    exported = await run("export", url)
    assert exported.exit_code == 0, exported.output
    path.write_bytes(exported.stdout_bytes)
    assert f"{len(wanted)} sessions" in exported.stderr
    assert "not in the file: sequences" in exported.stderr
    result = await run("import", other, str(path))
    assert result.exit_code == 0, result.output
    assert "read them back" in result.stdout
    async with open_store(other) as store:
        assert await content(store) == wanted
    some = await run("export", url, "--prefix", "lar")
    assert [json.loads(line)["session"] for line in some.stdout.splitlines() if '{"session"' in line] == [
        "large"
    ]
    path.write_bytes(exported.stdout_bytes[:-10])
    result = await run("import", f"sqlite:///{tmp_path}/third.db", str(path))
    assert result.exit_code == 2
    assert "cut short" in result.stderr
    assert not (tmp_path / "third.db").exists()
    result = await run("import", other, str(tmp_path / "never"))
    assert result.exit_code == 2
    assert "No such file" in result.stderr


async def test_damaged_records_are_counted_and_said(tmp_path: Path) -> None:
    import sqlite3

    url = f"sqlite:///{tmp_path}/one.db"
    async with open_store(url) as one:
        await one.append("a", [Message("user", "x"), Message("user", "y")])
    connection = sqlite3.connect(tmp_path / "one.db")
    connection.execute("UPDATE recollect_messages SET record = x'00' WHERE place & 4294967295 = 1")
    connection.commit()
    connection.close()
    exported = await run("export", url)
    assert exported.exit_code == 3
    assert "1 damaged" in exported.stderr
    (tmp_path / "memory.jsonl").write_bytes(exported.stdout_bytes)
    assert check_file(tmp_path / "memory.jsonl") == Moved(1, 1, 0)
