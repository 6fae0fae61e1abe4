"""Export and import: from each engine to each other, cut short, changed, stopped in the middle, and run again."""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import msgspec
import pytest
from typer.testing import CliRunner, Result

from recollect import Message, Refused, Store, TurnReused, Unreadable, open_store
from recollect.audit import audit
from recollect.cli import build
from recollect.message import encode
from recollect.moving import Piece
from recollect.transfer import PORTION, Moved, check_file, export_lines, import_file, movable
from recollect.verify import engines
from tests.contract.conftest import STORES, kind_of, policy_of

GOLDEN = Path(__file__).parent.parent / "golden" / "exports" / "v1.jsonl"
ODD = ["a/b", "日本", "\ud800", "new\nline", '"quoted"']


@pytest.fixture(scope="module", params=[each for each in STORES if each != "sqlite"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    name = kind_of(request.param)
    engine = engines.create(request.param, policy_of(request.param))
    try:
        yield name, engine.start().url
    finally:
        engine.close()


@pytest.fixture
async def url(server: tuple[str, str]) -> str:
    """An empty memory on the server."""
    name, url = server
    own = f"m{uuid.uuid4().hex}"
    if name == "redis":
        return f"{url}{'&' if '?' in url else '?'}prefix={own}"
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE {own}")
    await connection.close()
    return urlsplit(url)._replace(path=f"/{own}").geturl()


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


class Moment(float):
    """A time to the millisecond, which is what every engine keeps."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 0.002

    __hash__ = None  # type: ignore[assignment]


async def content(store: Store) -> dict[str, Any]:
    """Everything that has to be the same on the other side."""

    async def of(name: str) -> dict[str, Any]:
        about, kept = await store.describe(name), await movable(store).kept(name)
        return {
            "messages": await store.history(name),
            "position": about.position,
            "metadata": about.metadata,
            "times": [moment and Moment(moment) for moment in (about.created, about.updated, kept.expires)],
            "turns": kept.turns,
        }

    return {name: await of(name) async for name in store.sessions()}


async def imported(store: Store, path: Path) -> Moved:
    check_file(path)
    return [moved async for moved in import_file(store, path)][-1]


async def test_there_and_back(url: str, tmp_path: Path) -> None:
    """SQLite → the server → SQLite: the same sessions, messages, places, turns, times and metadata."""
    async with open_store(f"sqlite:///{tmp_path}/one.db") as one:
        await filled(one)
        first = await written(one, tmp_path / "one.jsonl")
        assert first == Moved(len(ODD) + 3, len(ODD) + 2 * PORTION + 7 + 4, 0)
        wanted = await content(one)
    async with open_store(url) as middle:
        assert await imported(middle, tmp_path / "one.jsonl") == first
        assert await content(middle) == wanted
        again = msgspec.structs.replace(first, present=first.messages)
        assert await imported(middle, tmp_path / "one.jsonl") == again, "stores nothing"
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
    for stop_after in range(1, len(ODD) + 5):  # as many steps as there are, but one
        async with open_store(f"sqlite:///{tmp_path}/{stop_after}.db") as opened:
            other = movable(opened)
            restore, calls = other.restore, 0

            async def failing(
                *arguments: Any, restore: Any = restore, limit: int = stop_after, **named: Any
            ) -> Any:
                nonlocal calls
                calls += 1
                if calls > limit:
                    raise ConnectionResetError
                return await restore(*arguments, **named)

            other.restore = failing  # type: ignore[method-assign]
            with pytest.raises(ConnectionResetError):
                await imported(other, path)
            other.restore = restore  # type: ignore[method-assign]
            await imported(other, path)
            assert await content(other) == wanted


@pytest.mark.parametrize("back", [False, True])
async def test_a_session_goes_on_where_it_was(url: str, tmp_path: Path, *, back: bool) -> None:
    """A turn that is sent again after the move is not stored twice, positions and cursors are right, and what was to
    expire expires."""
    path = tmp_path / "memory.jsonl"
    here, there = (url, f"sqlite:///{tmp_path}/one.db") if back else (f"sqlite:///{tmp_path}/one.db", url)
    name = uuid.uuid4().hex
    said = [Message("user", "one"), Message("assistant", "two")]
    async with open_store(here, ttl=timedelta(hours=1)) as one:
        await one.append(name, [Message("user", "zero")])
        receipt = await one.append(name, said, turn="t1")
        taken_back = await one.retract(name, 1, turn="t2")
        await one.annotate(name, {"title": "x"}, turn="t3")
        await written(one, path, name)
        wanted = (await content(one))[name]
    async with open_store(there) as other:
        await imported(other, path)
        found = await content(other)
        assert found[name] == wanted
        assert await other.append(name, said, turn="t1") == msgspec.structs.replace(
            receipt, durability=other.durability
        )
        assert (await other.retract(name, 1, turn="t2")).last == taken_back.last
        with pytest.raises(TurnReused):
            await other.append(name, [Message("user", "other")], turn="t1")
        assert (await content(other))[name] == wanted
        receipt = await other.append(name, [Message("user", "three")], expect=wanted["position"])
        assert [item.sequence for item in await other.history(name, after=3)] == [receipt.last]
        assert [item.sequence for item in await other.history(name, last=2)] == [3, receipt.last]
        await imported(other, path)  # what came later is no other content


async def test_an_audit_finds_nothing_in_what_was_imported(url: str, tmp_path: Path) -> None:
    """Also where the first turns have lost messages to a retraction."""
    said = [Message("user", "a")] * 3
    async with open_store(f"sqlite:///{tmp_path}/one.db") as one:
        for turn in ("before", "of three", "after"):
            await one.append("s", said, turn=turn)
        await one.retract("s", 1, 2, 3, 4, turn="retraction")
        await one.append("nothing left", said, turn="whole")
        await one.retract("nothing left", 1, 2, 3)
        await one.annotate("nothing left", {"a": 1})
        await one.append("replaced", said, turn="whole")
        await one.replace("replaced", said, turn="replacement")
        await one.retract("replaced", 4)
        await written(one, tmp_path / "one.jsonl")
        wanted = await content(one)
    for target in (url, f"sqlite:///{tmp_path}/two.db"):
        async with open_store(target) as other:
            await imported(other, tmp_path / "one.jsonl")
            assert await content(other) == wanted
        report = await audit(target, rate=None)
        assert report.counts == {}, report.findings


async def test_what_has_expired_meanwhile_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    async with open_store(f"sqlite:///{tmp_path}/one.db", ttl=timedelta(seconds=0.2)) as one:
        await one.append("a", [Message("user", "short-lived")] * (PORTION + 1))
        await written(one, path)
        deadline = time.monotonic() + 30
        while await one.history("a") and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
    async with open_store(f"sqlite:///{tmp_path}/other.db") as other:
        assert await imported(other, path) == Moved(0, 0, 0, expired=1)
        assert await content(other) == {}


async def test_a_file_of_the_first_format(url: str) -> None:
    """Its messages get sequences from 1; the file has neither turns nor times to live."""
    async with open_store(url) as store:
        for _ in range(2):
            await imported(store, GOLDEN)
            found = await content(store)
            texts = [(item.sequence, item.message.text) for item in found["a/b"]["messages"]]
            assert texts == [(1, "m0"), (2, "m2")]
            assert found["日本"]["metadata"] == {"title": "one"}
            assert found["a/b"]["turns"] == []


async def test_a_file_of_a_newer_release_is_named(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text('{"recollect":"export","format":99,"release":"9.0.0","export":"x"}\n')
    with pytest.raises(Unreadable, match="format 99, and this release knows 2: upgrade recollect"):
        check_file(path)


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
    cases += [whole.replace(b"hello", b"hallo", 1), whole.replace(b'"format":2', b'"format":3')]
    cases += [
        whole.replace(b'"sequence":2', b'"sequence":1'),
        whole.replace(b'"position":2', b'"position":3'),
    ]
    cases += [b"[]\n", b"{}\n", b"not JSON\n", b"[" * 10_000 + b"\n", b'{"recollect":1}\n']
    async with open_store(f"sqlite:///{tmp_path}/other.db") as other:
        for case in cases:
            broken.write_bytes(case)
            with pytest.raises(Unreadable):
                await imported(other, broken)
        assert await content(other) == {}


def by_hand(opening: dict[str, Any] | bytes, *messages: tuple[int, Message], form: int = 2) -> bytes:
    """A file with right checksums, as anybody can write it."""
    said = opening if isinstance(opening, bytes) else json.dumps(opening).encode()
    records = [(sequence, encode(message).rstrip()) for sequence, message in messages]
    if form == 1:
        lines = [said, *(b'{"message":%b}' % record for _, record in records)]
        digest = blake2b(b"".join(record for _, record in records), digest_size=16)
    else:
        lines = [said, *(b'{"sequence":%d,"message":%b}' % each for each in records)]
        digest = blake2b(b"".join(line + b"\n" for line in lines), digest_size=16)
    total = blake2b(digest.digest(), digest_size=16).hexdigest()
    name = "a" if isinstance(opening, bytes) else opening["session"]
    end = {"end": name, "messages": len(messages), "checksum": digest.hexdigest()}
    foot = {"sessions": 1, "messages": len(messages), "checksum": total}
    head = {"recollect": "export", "format": form, "export": "x"}
    return b"\n".join(
        [json.dumps(head).encode(), *lines, json.dumps(end).encode(), json.dumps(foot).encode(), b""]
    )


async def test_a_file_that_somebody_else_wrote_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    whole = {"session": "a", "metadata": {}, "position": 1}
    said = (1, Message("user", "x"))
    odd: dict[str, list[Any]] = {
        "expires": ["soon", [], 1e300, -1, True],
        "created": ["now", 1e300, {}],
        "position": ["1", 1.5, -1, 2**60],
        "turns": [[["t", -1, 1, None]], [["t", 1, 1, "no"]], [[1, 1, 1, None]], {"t": 1}],
        "session": [7],
        "metadata": [["ab"]],
    }
    cases = [by_hand(whole | {name: value}, said) for name, values in odd.items() for value in values]
    cases += [by_hand(json.dumps(whole | {"expires": float("nan")}).encode(), said)]
    cases += [by_hand(b'["session","metadata"]', said)]
    cases += [by_hand(whole, said).replace(b'"end": "a", "messages": 1, ', b'"end": "a", ')]
    cases += [by_hand(whole, said).replace(b'"sessions": 1, "messages": 1, ', b'"sessions": 1, ')]
    async with open_store(f"sqlite:///{tmp_path}/one.db") as store:
        for case in cases:
            path.write_bytes(case)
            with pytest.raises(Unreadable):
                await imported(store, path)
        assert await content(store) == {}
        path.write_bytes(by_hand(whole, said))
        assert await imported(store, path) == Moved(1, 1, 0)


async def test_a_sequence_that_is_too_large_gets_into_no_other_session(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    opening = {"session": "b", "metadata": {}, "position": 5 << 32}
    path.write_bytes(by_hand(opening, (1, Message("user", "x")), ((5 << 32) - 1, Message("user", "y"))))
    async with open_store(f"sqlite:///{tmp_path}/one.db") as store:
        await store.append("a", [Message("user", "mine")])
        wanted = await content(store)
        with pytest.raises(Refused, match="SQLite holds up to"):
            await imported(store, path)
        assert await content(store) == wanted


async def test_metadata_alone_in_a_file_of_the_first_format(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_bytes(by_hand({"session": "a", "metadata": {"title": "x"}}, form=1))
    async with open_store(f"sqlite:///{tmp_path}/one.db") as store:
        for _ in range(2):
            assert await imported(store, path) == Moved(1, 0, 0)
            assert (await store.describe("a")).metadata == {"title": "x"}


async def test_large_messages_are_written_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sizes = tmp_path / "memory.jsonl", []
    each = 100_000
    monkeypatch.setattr("recollect.transfer.PORTION_BYTES", 4 * each)
    messages = [
        Message("user", str(n) * size) for n, size in enumerate([each, 10, each, each, each, 5 * each, 1])
    ]
    async with open_store(f"sqlite:///{tmp_path}/one.db") as one:
        for message in messages:
            await one.append("a", [message])
        await written(one, path)
    async with open_store(f"sqlite:///{tmp_path}/other.db") as opened:
        other = movable(opened)
        restore = other.restore

        async def measured(session: str, piece: Piece) -> None:
            sizes.append(len(piece.rows))
            await restore(session, piece)

        other.restore = measured  # type: ignore[method-assign]
        await imported(other, path)
        assert [item.message for item in await other.history("a")] == messages
    assert sizes == [4, 1, 1, 1]


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
    assert "not in the file: sessions that are forgotten" in exported.stderr
    result = await run("import", other, str(path))
    assert result.exit_code == 0, result.output
    assert "read them back" in result.stdout
    async with open_store(other) as store:
        assert await content(store) == wanted
    again = await run("import", other, str(path))
    assert "nothing to import" in again.stdout
    assert f"{len(wanted)} sessions were there already, and read back as they are" in again.stdout
    swapped = await run("import", str(path), "redis://:secret@localhost/0")
    assert (swapped.exit_code, "the address comes first, then the file" in swapped.stderr) == (2, True)
    assert "secret" not in swapped.stderr
    some = await run("export", url, "--prefix", "lar")
    assert [json.loads(line)["session"] for line in some.stdout.splitlines() if '{"session"' in line] == [
        "large"
    ]
    path.write_bytes(exported.stdout_bytes[:-10])
    result = await run("import", f"sqlite:///{tmp_path}/third.db", str(path))
    assert result.exit_code == 2
    assert "cut short" in result.stderr
    assert not (tmp_path / "third.db").exists()
    path.write_bytes(b"\xff\xfe no export, and no end of a line")
    result = await run("import", other, str(path))
    assert (result.exit_code, result.stderr) == (
        2,
        f"recollect import: {path} is no file that `recollect export` wrote\n",
    )
    result = await run("import", other, str(tmp_path / "never"))
    assert result.exit_code == 2
    assert "No such file" in result.stderr


async def test_the_sessions_of_a_watch_stay_where_they_are(tmp_path: Path) -> None:
    """A new engine gets a watch of its own: what the old canary wrote is no memory. Whatever else begins like it is."""
    url, canary, users = (
        f"sqlite:///{tmp_path}/one.db",
        "recollect-watch/0123456789ab/1",
        "recollect-watch/notes/1",
    )
    async with open_store(url) as store:
        for session in ("alice", canary, users):
            await store.append(session, [Message("user", "x")])
    exported = await run("export", url)
    assert sessions_of(exported) == {"alice", users}
    assert "nor 1 session of `recollect watch`; --prefix recollect-watch/ exports them" in exported.stderr
    asked = await run("export", url, "--prefix", "recollect-watch/")
    assert sessions_of(asked) == {canary, users}
    assert "of `recollect watch`" not in asked.stderr


def sessions_of(exported: Result) -> set[str]:
    return {
        json.loads(line)["session"] for line in exported.stdout.splitlines() if line.startswith('{"session"')
    }


@pytest.mark.parametrize("words", [["export"], ["erase", "alice", "--yes"]])
async def test_a_mistyped_file_is_refused_and_not_made(tmp_path: Path, words: list[str]) -> None:
    refused = await run(words[0], f"sqlite:///{tmp_path}/mistyped.db", *words[1:])
    assert refused.exit_code == 2
    assert refused.output.endswith("there is no such file\n"), refused.output
    assert list(tmp_path.iterdir()) == []


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
