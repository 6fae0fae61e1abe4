"""What was erased is in no file any more, except where the report says.

Every file of the engine is searched for the bytes. PostgreSQL's write-ahead log is where they may still be.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from recollect import (
    Conflict,
    Damaged,
    Erasable,
    Erasure,
    Message,
    OutcomeUnknown,
    SessionState,
    Store,
    open_store,
)
from recollect import sync as recollect_sync
from recollect.fingerprint import fingerprint
from recollect.known import ended_by
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


# ---- another process that has used the session


async def read(store: Store, session: str) -> object:
    return await store.history(session)


async def position(store: Store, session: str) -> object:
    return await store.position(session)


async def state(store: Store, session: str) -> object:
    return await store.state(session)


async def described(store: Store, session: str) -> object:
    return (await store.describe(session)).state


async def forgotten(store: Store, session: str) -> object:
    return await store.forget(session)


async def found(store: Store, session: str) -> object:
    return await store.find(session, "no such id")


async def appended(store: Store, session: str) -> object:
    return (await store.append(session, said(1))).last


async def expected(store: Store, session: str) -> object:
    return (await store.append(session, said(1), expect=0)).last


async def together(store: Store, session: str) -> object:
    return [receipt.last for receipt in (await store.append_many({session: said(1)})).values()]


async def many_at_once(store: Store, session: str) -> object:
    receipts = await asyncio.gather(*(store.append(session, said(1)) for _ in range(8)))
    return sorted(receipt.last for receipt in receipts)


async def replaced(store: Store, session: str) -> object:
    return (await store.replace(session, said(1))).last


ABSENT: dict[str, tuple[Callable[[Store, str], Awaitable[object]], object]] = {
    "history": (read, []),
    "position": (position, 0),
    "state": (state, SessionState.ABSENT),
    "describe": (described, SessionState.ABSENT),
    "find": (found, None),
    "forget": (forgotten, None),
    "append": (appended, 1),
    "expect": (expected, 1),
    "append_many": (together, [1]),
    "many at once": (many_at_once, list(range(1, 9))),
    "replace": (replaced, 1),
}
"""What a store can be asked first about a session that another one has erased, and what it answers."""


async def gone(store: Store, session: str) -> list[int]:
    """Sequences of what the history says is missing."""
    return [item.sequence for item in await store.history(session) if isinstance(item.message, Damaged)]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("asked", ABSENT)
async def test_another_store_does_not_take_it_for_a_loss(
    place: Place, session: str, asked: str, caplog: pytest.LogCaptureFixture
) -> None:
    ask, answer = ABSENT[asked]
    async with place.open() as eraser, place.open() as store:
        for number in range(3):
            await store.append(session, said(number))
        await eraser.forget(session, erase=True)
        assert await ask(store, session) == answer
        await store.append(session, said(3))
        assert await gone(store, session) == await gone(eraser, session) == []
        assert await store.position(session) == await eraser.position(session)
    assert errors(caplog) == []


async def test_another_store_can_copy_to_an_id_that_was_erased(
    place: Place, session: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = place.beside(session, "source")
    async with place.open() as eraser, place.open() as store:
        for number in range(3):
            await store.append(session, said(number))
        await store.append(source, [Message("user", "copied")])
        await eraser.forget(session, erase=True)
        assert (await store.fork(source, session)).last == 1
        assert await texts(store, session) == await texts(eraser, session) == ["copied"]
    assert errors(caplog) == []


async def test_another_store_takes_an_id_that_is_used_again_for_a_new_session(
    place: Place, session: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with place.open() as eraser, place.open() as store:
        for life in range(1, 3):  # each erasure explains that one life has ended
            for number in range(5):
                await store.append(session, said(number))
            await eraser.forget(session, erase=True)
            await eraser.append(session, [Message("user", f"life {life}")])
            assert await texts(store, session) == [f"life {life}"]
            assert (await store.append(session, said(2))).last == 2
            assert await gone(eraser, session) == []
    assert errors(caplog) == []


async def lose(place: Place, session: str, left: int) -> None:
    """What the engine does when it comes back without the last writes."""
    if place.name == "redis":
        async with place.redis() as hands:
            stem = f"recollect:{{s{session}}}"
            await hands.ltrim(f"{stem}:m", 0, left - 1)
            await hands.hset(f"{stem}:c", "last", left)
    else:
        hands = await asyncpg.connect(place.url)
        name = session.encode()
        for statement in (
            "UPDATE recollect_sessions SET last = $2 WHERE name = $1",
            "DELETE FROM recollect_messages m USING recollect_sessions s "
            "WHERE s.id = m.session_id AND s.name = $1 AND m.sequence > $2",
        ):
            await hands.execute(statement, name, left)
        await hands.close()


async def test_one_session_is_lost_and_another_was_erased(
    place: Place, session: str, caplog: pytest.LogCaptureFixture
) -> None:
    if place.name not in ANSWERED:
        return
    gone_by = place.beside(session, "erased")
    both = {name: [Message("user", "x")] for name in (session, gone_by)}
    async with place.open() as eraser, place.open() as store:
        for _ in range(3):
            await store.append_many(both)
        await lose(place, session, 1)
        await eraser.forget(gone_by, erase=True)
        receipts = await store.append_many(both)
        assert [receipt.first for receipt in receipts.values()] == [4, 1]
        assert await gone(eraser, gone_by) == []
        assert len(errors(caplog)) == 1


@pytest.mark.parametrize("used_before", [True, False])
async def test_what_is_lost_after_an_erasure_is_a_loss(
    place: Place, session: str, used_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if place.name not in ANSWERED:
        return
    async with place.open() as eraser, place.open() as store:
        await (store if used_before else eraser).append(session, [Message("user", "old")] * 9)
        await eraser.forget(session, erase=True)
        for number in range(3):
            await store.append(session, said(number))
        assert errors(caplog) == []
        await lose(place, session, 1)
        assert await gone(store, session) == [2]
        assert (await store.append(session, said(4))).first == 4
        assert len(errors(caplog)) == 1


async def test_what_is_appended_while_it_looks_is_known(
    place: Place, session: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The session's new life gets as far as the old one, before the store knows that it is a new one."""
    if place.name not in ANSWERED:
        return
    looks, looked = asyncio.Event(), asyncio.Event()
    async with place.open() as eraser, place.open() as store:
        for number in range(3):
            await store.append(session, said(number))
        await eraser.forget(session, erase=True)
        await eraser.append(session, said(1))
        was_erased = attrgetter("_was_erased")(store)

        async def held_up(*given: Any) -> Any:
            monkeypatch.undo()
            looks.set()
            await looked.wait()
            return await was_erased(*given)

        monkeypatch.setattr(store, "_was_erased", held_up)
        reading = asyncio.create_task(gone(store, session))
        async with asyncio.timeout(60):
            await looks.wait()
            for number in range(2, 5):
                await eraser.append(session, said(number))
            assert (await store.append(session, said(5))).last == 5
            looked.set()
            assert await reading == []
        assert errors(caplog) == []
        await lose(place, session, 4)
        assert await gone(store, session) == [5]


async def test_its_witness_no_longer_names_the_session(place: Place, session: str, tmp_path: Path) -> None:
    if place.name not in ANSWERED:
        return  # it has nothing to miss, and so does not ask
    witness = tmp_path / "witness"
    async with place.open() as eraser, place.open(witness=witness) as store:
        await store.append(session, said(1))
        await eraser.forget(session, erase=True)
        assert await store.history(session) == []
    assert session not in witness.read_text()
    async with place.open(witness=witness):
        pass


@pytest.mark.parametrize("kept", [{"TRACES_MAX": 1}, {"TRACE_LIFE": timedelta(0)}], ids=["many", "old"])
async def test_without_a_trace_it_is_a_loss(
    place: Place,
    session: str,
    kept: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Traces are few, and do not stay for long. Which of them is the oldest decides, not which one is asked for."""
    if place.name not in ANSWERED:
        return
    for name, value in kept.items():
        monkeypatch.setattr(f"recollect.stores.{place.name}.erasing.{name}", value)
    one, two = place.beside(session, 1), place.beside(session, 2)
    async with place.open() as eraser, place.open() as store:
        for name in (one, two):
            await store.append(name, said(1))
        for name in (one, two):
            await eraser.forget(name, erase=True)
        assert await gone(store, one) == [1]
        assert len(errors(caplog)) == 1
        if "TRACES_MAX" in kept:
            assert await gone(store, two) == []
            assert len(errors(caplog)) == 1


def test_a_clock_that_was_set_back_explains_nothing() -> None:
    now = time.monotonic()
    assert ended_by(1.0, (5, now - 2.0))
    assert not ended_by(3.0, (5, now - 2.0))
    assert not ended_by(-3.0, (5, now - 2.0))


async def test_a_session_that_never_was_leaves_no_trace(
    place: Place, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place.name not in ANSWERED:
        return
    monkeypatch.setattr(f"recollect.stores.{place.name}.erasing.TRACES_MAX", 1)
    async with place.open() as eraser, place.open() as store:
        await store.append(session, said(1))
        await eraser.forget(session, erase=True)
        await eraser.forget(f"{session}-never-was", erase=True)
        assert await gone(store, session) == []


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


async def test_a_failing_disk_leaves_it_open_whether_it_is_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        await fill(store)
        monkeypatch.setattr(erasing, "_erase_rows", fails)
        with pytest.raises(OutcomeUnknown, match=r"disk I/O error.*; erase again$"):
            await store.forget(NAME, erase=True)
        monkeypatch.undo()
        await store.forget(NAME, erase=True)
        assert found_in(tmp_path) == set()


async def test_what_is_written_after_the_expected_position_is_not_erased(
    place: Place, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the forgetting and the erasing. Who expects no position erases it, too."""
    async with place.open() as store, place.open() as other:
        erases = store._erase  # type: ignore[attr-defined]

        async def of_what_goes_on(*given: Any) -> Any:
            await other.append(session, said(2))
            return await erases(*given)

        monkeypatch.setattr(store, "_erase", of_what_goes_on)
        await store.append(session, said(1))
        with pytest.raises(OutcomeUnknown, match=r"somebody has written since.*; erase again$"):
            await store.forget(session, expect=1, erase=True)
        assert [item.sequence for item in await store.history(session)] == [2]
        with pytest.raises(Conflict):
            await store.forget(session, expect=1, erase=True)
        await store.forget(session, erase=True)
        assert await store.position(session) == 0
        monkeypatch.undo()
        await store.append(session, said(1))
        assert isinstance(await store.forget(session, expect=1, erase=True), Erasure)
        assert await store.position(session) == 0
        assert isinstance(await store.forget(session, expect=0, erase=True), Erasure)


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
