"""What was erased is in no file any more, except where the report says.

Every file of the engine is searched for the bytes. PostgreSQL's write-ahead log is where they may still be.
"""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from recollect import (
    Erasable,
    Erasure,
    Message,
    SessionState,
    Store,
    open_store,
)
from recollect import sync as recollect_sync
from recollect.fingerprint import fingerprint
from recollect.stores.sqlite import erasing
from recollect.stores.sqlite.store import SqliteStore
from recollect.verify import engines
from tests.contract.conftest import Place
from tests.contract.reading import texts

TEXT, TURN, NAME = "canary-text-5f1c09", "canary-turn-77ab31", "canary-session-e40b52"


PLACES = [
    ("sqlite", ""),
    ("redis", "aof-always"),
    ("redis", "mixed"),
    ("redis", "rdb"),
    ("postgres", "default"),
]


@pytest.fixture(params=PLACES, ids=" ".join)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Place, Path]]:
    """A place, and the folder with all of its files."""
    name, policy = request.param
    if name == "sqlite":
        yield Place(name, engines.create(name, "wal-full"), f"sqlite:///{tmp_path}/memory.db"), tmp_path
        return
    engine = engines.create(name, policy)
    try:
        endpoint = engine.start()
        assert engine.data is not None
        yield Place(name, engine, endpoint.url), engine.data
    finally:
        engine.close()


def canaries() -> dict[str, bytes]:
    return {
        "text": TEXT.encode(),
        "turn": TURN.encode(),
        "name": NAME.encode(),
        "fingerprint": fingerprint(said(3)),
    }


def said(number: int) -> list[Message]:
    return [Message("user", f"{TEXT} {number} " + "and more " * number)]


def found_in(folder: Path) -> set[tuple[str, str]]:
    found = set()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            found |= {
                (str(path.relative_to(folder)), what)
                for what, canary in canaries().items()
                if canary in content
            }
    return found


async def fill(store: Store) -> None:
    """The session among others, grown over time, so that pages were split and moved."""
    for number in range(60):
        await store.append(NAME, said(number), turn=f"{TURN}-{number}")
        for other in ("a", "z"):
            await store.append(other, [Message("user", f"stays {number} " * 20)], turn=f"other-{number}")


async def test_no_file_has_the_bytes_but_where_the_report_says(kept: tuple[Place, Path]) -> None:
    place, folder = kept
    async with place.open() as store:
        assert isinstance(store, Erasable)
        await fill(store)
        if place.name != "redis" or "rdb" not in str(place.engine.policy):
            assert {what for _, what in found_in(folder)} == set(canaries()), "the search itself finds them"
        report = await store.forget(NAME, erase=True)
        assert isinstance(report, Erasure)
        listed = [unreached.where for unreached in report.unreached]
        left = {file for file, _ in found_in(folder)}
        assert {file for file in left if not any(file.startswith(where) for where in listed)} == set()
        if place.name != "postgres":
            assert left == set(), "and it says so of no file that could be reached"
        assert report.reached
        assert await store.history(NAME) == []
        assert await store.state(NAME) is SessionState.ABSENT
        assert len(await store.history("a")) == len(await store.history("z")) == 60
    left = {file for file, _ in found_in(folder)}
    assert {file for file in left if not any(file.startswith(where) for where in listed)} == set()


async def test_afterwards_the_session_never_was(kept: tuple[Place, Path]) -> None:
    place, _ = kept
    async with place.open() as store, place.open() as other:
        await fill(store)
        await store.forget(NAME, erase=True)
        again = await store.append(NAME, [Message("user", "anew")], turn=f"{TURN}-0")
        assert (again.first, again.last) == (1, 1)
        assert await texts(other, NAME) == ["anew"]
        assert NAME in [name async for name in other.sessions()]
        assert (await store.append("a", [Message("user", "goes on")])).first == 61


ANSWERED = {"redis": "_servers.submit", "postgres": "_append_one"}
"""What an append waits for, where it leaves the process."""


@pytest.mark.parametrize("how", ["stored before", "sent before, stored after"])
async def test_an_append_beside_the_erasure_is_no_loss(
    kept: tuple[Place, Path], how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place, _ = kept
    if place.name not in ANSWERED:
        return
    erased, under_way = asyncio.Event(), asyncio.Event()
    async with place.open() as store:
        await store.append(NAME, said(1))
        at_the_engine = attrgetter(ANSWERED[place.name])(store)

        async def held_up(*given: Any) -> Any:
            monkeypatch.undo()
            if how == "stored before":
                answer = await at_the_engine(*given)
            under_way.set()
            await erased.wait()
            return answer if how == "stored before" else await at_the_engine(*given)

        monkeypatch.setattr(at_the_engine.__self__, at_the_engine.__name__, held_up)
        append = asyncio.create_task(store.append(NAME, said(2)))
        async with asyncio.timeout(60):
            await under_way.wait()
            await store.forget(NAME, erase=True)
            erased.set()
            await append
        left = [] if how == "stored before" else [1]
        assert [item.sequence for item in await store.history(NAME)] == left
        assert (await store.append(NAME, said(3))).first == len(left) + 1
        assert await store.position(NAME) == len(left) + 1
        assert all(isinstance(item.message, Message) for item in await store.history(NAME))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_forgotten_session_can_be_erased_and_so_can_one_that_never_was(
    kept: tuple[Place, Path],
) -> None:
    place, folder = kept
    async with place.open() as store:
        await fill(store)
        await store.forget(NAME)
        for name in (NAME, "never was"):
            assert isinstance(await store.forget(name, erase=True), Erasure)
        assert {file for file, _ in found_in(folder) if not file.startswith("pg_wal")} == set()


async def test_the_witness_has_no_name_of_it_and_raises_no_alarm(
    kept: tuple[Place, Path], tmp_path: Path
) -> None:
    place, _ = kept
    witness = tmp_path / "witness"
    async with place.open(witness=witness) as store:
        await fill(store)
        await store.append(NAME, said(1))
    assert NAME in witness.read_text()
    async with place.open(witness=witness) as store:
        report = await store.forget(NAME, erase=True)
        assert report is not None
        assert "the witness" in report.reached
        assert NAME not in witness.read_text()
    async with place.open(witness=witness):
        pass


async def test_a_stale_store_of_the_file_cannot_write_into_another_session(tmp_path: Path) -> None:
    """SQLite: a store remembers a session by its row's number, which must never be given to another one."""
    url = f"sqlite:///{tmp_path}/memory.db"
    async with open_store(url) as one, open_store(url) as other:
        await one.append(NAME, said(1))
        await other.append(NAME, said(2))
        await one.forget(NAME, erase=True)
        await one.append("another", [Message("user", "mine")])
        receipt = await other.append(NAME, said(3))
        assert receipt.first == 1
        assert [item.sequence for item in await one.history("another")] == [1]
        assert [item.sequence for item in await one.history(NAME)] == [1]


async def test_a_reader_that_holds_the_log_is_told(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with open_store(f"sqlite:///{path}", timeout_s=0.5) as store:
        await fill(store)
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM recollect_messages").fetchone()
            report = await store.forget(NAME, erase=True)
            assert report is not None
            listed = {unreached.where for unreached in report.unreached}
            assert "memory.db-wal" in listed
            assert {file for file, _ in found_in(tmp_path)} <= {"memory.db", "memory.db-wal"}
        report = await store.forget(NAME, erase=True)
        assert report is not None
        assert found_in(tmp_path) == set()


def leave_deleted_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SQLite does by itself; distributions build it with another default."""
    connect = SqliteStore._connect

    def plain(self: SqliteStore) -> sqlite3.Connection:
        connection = connect(self)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(SqliteStore, "_connect", plain)


async def test_what_sqlite_left_before_is_erased_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_deleted_bytes(monkeypatch)
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        await fill(store)
        await store.forget(NAME)
        await store.forget(NAME, erase=True)
        assert found_in(tmp_path) == set()


@pytest.mark.parametrize("step", ["_write_anew", "_cut_log"])
async def test_each_step_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The search would find a store that deletes and no more."""
    leave_deleted_bytes(monkeypatch)
    monkeypatch.setattr(erasing, step, lambda connection, deadline: None)
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        await fill(store)
        await store.forget(NAME)
        await store.forget(NAME, erase=True)
        assert found_in(tmp_path)


def test_without_async(tmp_path: Path) -> None:
    with recollect_sync.open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        store.append(NAME, said(1))
        assert isinstance(store.forget(NAME, erase=True), Erasure)
        assert store.forget(NAME) is None
        assert found_in(tmp_path) == set()
