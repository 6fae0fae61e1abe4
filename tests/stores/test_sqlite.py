"""What only the SQLite store has: one file, many processes, one fsync for many."""

import asyncio
import importlib
import shutil
import sqlite3
import struct
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recollect import (
    CannotOpen,
    EngineUnavailable,
    Message,
    NotWritten,
    Refused,
    SessionState,
    StoreReplaced,
    Unreadable,
    open_store,
)
from recollect.changing import Fork
from recollect.store import Receipt
from recollect.stores.sqlite import forking, rows
from recollect.stores.sqlite.rows import _PLACES, _RECORDS, _SESSION
from recollect.stores.sqlite.store import SqliteStore
from recollect.sync import SyncStore
from recollect.sync import open_store as open_sync
from tests.contract.test_sync import in_a_fork
from tests.disks import BEST


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def commits_in_wal(path: Path) -> int:
    """Counts commits as the file has them: a frame that ends a transaction carries the database's size."""
    raw = Path(f"{path}-wal").read_bytes()
    if not raw:
        return 0
    (page_size,) = struct.unpack_from(">I", raw, 8)
    salt = raw[16:24]
    frames = range(32, len(raw), 24 + page_size)
    return sum(raw[at + 4 : at + 8] != bytes(4) for at in frames if raw[at + 8 : at + 16] == salt)


async def test_concurrent_appends_share_a_commit(path: Path) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        before = commits_in_wal(path)
        await asyncio.gather(*(store.append(f"s{n}", [Message("user", "x")]) for n in range(50)))
        assert commits_in_wal(path) - before <= 2
        before = commits_in_wal(path)
        for _ in range(10):
            await store.append("s0", [Message("user", "x")])
        assert commits_in_wal(path) - before == 10, "one after the other, each is durable before the next"


async def test_limits_are_pushed_into_the_engine(path: Path) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        await store.append("s", [Message("user", "x")])
    connection = sqlite3.connect(path)
    for query, arguments in ((_RECORDS, (1, 10)), (_PLACES, (1, 10)), (_SESSION, (b"s",))):
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", arguments))
        assert "SCAN" not in plan, plan
        assert "TEMP B-TREE" not in plan, plan
    connection.close()


async def test_a_deleted_file_is_noticed_before_anything_is_acknowledged(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}")
    for _ in range(3):
        await store.append("s", [Message("user", "kept")])
    for file in path.parent.iterdir():
        file.unlink()
    with pytest.raises(StoreReplaced, match="deleted or replaced"):
        await store.append("s", [Message("user", "lost")])
    with pytest.raises(StoreReplaced):
        await store.history("s", last=10)
    await store.close()


async def test_a_folder_that_was_moved_away_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    store = await open_store(f"sqlite:///{tmp_path}/volume/memory.db")
    await store.append("s", [Message("user", "kept")])
    shutil.move(tmp_path / "volume", tmp_path / "elsewhere")
    deadline = time.monotonic() + 5
    noticed = False
    while not noticed and time.monotonic() < deadline:
        try:
            await store.append("s", [Message("user", "where?")])
        except StoreReplaced:
            noticed = True
    assert noticed
    await store.close()


async def test_a_lock_held_by_another_is_waited_for(path: Path) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        await store.append("s", [Message("user", "a")])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.append("s", [Message("user", "b")]))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done, "the lock is held, so the append waits, and the event loop goes on"
        other.execute("ROLLBACK")
        assert (await waiting).last == 2
        other.close()


async def test_a_lock_that_is_never_released_is_said_so(path: Path) -> None:
    async with open_store(f"sqlite:///{path}", timeout_s=2.0) as store:
        await store.append("s", [Message("user", "a")])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(NotWritten, match="locked by another process"):
            await store.append("s", [Message("user", "b")])
        other.execute("ROLLBACK")
        other.close()
        assert (await store.append("s", [Message("user", "c")])).last == 2


async def test_a_full_file_system_is_not_written(path: Path) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        await store.append("s", [Message("user", "a")])
        assert isinstance(store, SqliteStore)
        (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(NotWritten, match="full"):
            await store.append("s", [Message("user", "x" * 100_000)])
        store._writer.execute("PRAGMA max_page_count = 1000000")
        assert (await store.append("s", [Message("user", "b")])).last == 2


async def test_a_transaction_that_cannot_begin_is_not_written(path: Path) -> None:
    async with open_store(f"sqlite:///{path}?policy=delete-extra") as store:
        await store.append("s", [Message("user", "a")])
        with path.open("r+b") as file:
            file.write(b"no longer a database" * 5)
        with pytest.raises(NotWritten, match="not a database"):
            await store.append("s", [Message("user", "b")])


@pytest.mark.parametrize("error", [OverflowError, MemoryError, AssertionError, sqlite3.OperationalError])
async def test_no_error_inside_a_transaction_keeps_the_lock(path: Path, error: type[Exception]) -> None:
    """Whatever it is: nothing of it is written, and this store and others write on."""

    def wrong(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO recollect_meta VALUES ('half', 'done')")
        raise error("in the middle")

    async with open_store(f"sqlite:///{path}") as store:
        assert isinstance(store, SqliteStore)
        await store.append("s", [Message("user", "1")])
        with pytest.raises(NotWritten, match="in the middle"):
            await store._submit(wrong)
        await store.append("s", [Message("user", "2")])
        async with open_store(f"sqlite:///{path}", timeout_s=1.0) as other:
            await other.append("s", [Message("user", "3")])
        assert [item.sequence for item in await store.history("s")] == [1, 2, 3]
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT * FROM recollect_meta WHERE name = 'half'").fetchall() == []
    connection.close()


async def test_an_interrupt_inside_a_transaction_keeps_no_lock(path: Path) -> None:
    """Ctrl-C while a commit runs on the event loop's own thread."""

    def interrupted(connection: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    async with open_store(f"sqlite:///{path}") as store:
        assert isinstance(store, SqliteStore)
        with pytest.raises(KeyboardInterrupt):
            store._commit([interrupted], wait_s=0.0)
        async with open_store(f"sqlite:///{path}", timeout_s=1.0) as other:
            assert (await other.append("s", [Message("user", "1")])).last == 1
        assert (await store.append("s", [Message("user", "2")])).last == 2


def rows_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT count(*) FROM recollect_messages").fetchone()
    connection.close()
    return int(count)


async def test_a_long_session_is_forgotten_at_once_and_freed_in_portions(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.stores.sqlite.rows.ROWS_FREED_MAX", 10)
    async with open_store(f"sqlite:///{path}") as store:
        await store.append("s", [Message("user", str(number)) for number in range(95)])
        await store.append("other", [Message("user", "kept")])
        await store.forget("s")
        assert rows_of(path) == 1
        assert await store.state("s") is SessionState.FORGOTTEN
        assert (await store.append("s", [Message("user", "new")])).last == 96


@pytest.mark.parametrize("ended", ["forgotten", "expired"])
async def test_what_there_was_no_time_to_free_is_not_shown_and_swept_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ended: str
) -> None:
    monkeypatch.setattr("recollect.stores.sqlite.rows.ROWS_FREED_MAX", 10)
    ttl = timedelta(milliseconds=1) if ended == "expired" else None
    async with open_store(f"sqlite:///{path}", ttl=ttl) as store:
        assert isinstance(store, SqliteStore)
        await store.append("s", [Message("user", str(number)) for number in range(95)])
        if ended == "expired":
            while await store.state("s") is not SessionState.EXPIRED:
                await asyncio.sleep(0.001)
            assert await store._submit(partial(store._sweep_one, key=b"s")) == 1
        else:
            store._timeout_s = 0.0
            await store.forget("s")
            assert "sweep() frees it" in caplog.text
    assert rows_of(path) == 85
    async with open_store(f"sqlite:///{path}") as store:
        for window in ({}, {"last": 5}, {"after": 3}, {"after": 90, "last": 5}):
            assert await store.history("s", **window) == []
        assert await store.state("s") is SessionState(ended)
        assert [name async for name in store.sessions()] == []
        assert (await store.append("s", [Message("user", "new")], expect=95)).last == 96
        assert [item.sequence for item in await store.history("s")] == [96]
        await store.sweep()
        assert rows_of(path) == 1
        assert [item.sequence for item in await store.history("s")] == [96]


async def test_a_read_that_does_not_end_is_stopped(path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    async with open_store(f"sqlite:///{path}", timeout_s=0.3) as store:
        assert isinstance(store, SqliteStore)
        await store.append("s", [Message("user", "kept")])
        with pytest.raises(EngineUnavailable, match=r"reading took longer than 0\.3 s"):
            await store._read(lambda connection: connection.execute(endless).fetchall())
        assert len(await store.history("s")) == 1


async def test_what_is_no_database_is_unreadable(path: Path) -> None:
    path.write_bytes(b"this is a text file, not a database at all" * 100)
    with pytest.raises(Unreadable, match="not a database"):
        await open_store(f"sqlite:///{path}")


async def test_a_file_of_a_newer_incompatible_release_is_refused(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(Unreadable, match="newer release"):
        await open_store(f"sqlite:///{path}")


async def test_a_folder_in_place_of_a_file_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(CannotOpen):
        await open_store(f"sqlite:///{tmp_path}")


async def test_slow_commits_leave_the_event_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        assert isinstance(store, SqliteStore)
        await store.append("s", [Message("user", "a")])
        store._commit_s = 1.0  # as after a disk that stalls
        threads: list[str] = []
        commit = store._commit

        def watched(*arguments: object) -> object:
            import threading

            threads.append(threading.current_thread().name)
            return commit(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "_commit", watched)
        await store.append("s", [Message("user", "b")])
        assert threads[0].startswith("recollect-sqlite-write")
        for _ in range(60):
            await store.append("s", [Message("user", "c")])
        assert store._commit_s < 1.0, "and come back when the disk does"


async def test_two_policies_share_a_file(path: Path) -> None:
    async with open_store(f"sqlite:///{path}", durability=BEST) as careful:
        async with open_store(f"sqlite:///{path}", durability="written") as quick:
            await quick.append("s", [Message("user", "a")], turn="t")
            before = commits_in_wal(path)
            await careful.append("s", [Message("user", "a")], turn="t")
            assert commits_in_wal(path) == before + 1, "a repeated turn is synced, not only found"


async def test_a_long_fork_leaves_the_event_loop_to_others(tmp_path: Path) -> None:
    """It copies as many rows as there are, on the thread of writes."""
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        assert isinstance(store, SqliteStore)
        await store.append("s", [Message("user", "x")] * 1000)
        threads: list[str] = []
        fork = store._fork

        def noted(connection: sqlite3.Connection, change: Fork) -> Receipt:
            threads.append(threading.current_thread().name)
            return fork(connection, change)

        store._fork = noted  # type: ignore[method-assign]
        await store.fork("s", "copy")
        assert len(await store.history("copy")) == 1000
    assert len(threads) == 1
    assert threads[0].startswith("recollect-sqlite-write")


FULL: dict[str, Callable[[Any], Any]] = {
    "append": lambda store: store.append("s", [Message("user", "x")]),
    "append_many": lambda store: store.append_many(
        {"a": [Message("user", "x")], "s": [Message("user", "x")]}
    ),
    "replace": lambda store: store.replace("s", [Message("user", "x")]),
    "replace by nothing": lambda store: store.replace("s", []),
    "retract": lambda store: store.retract("s", 1),
    "annotate": lambda store: store.annotate("s", {"a": 1}),
}


@pytest.mark.parametrize("change", FULL)
@pytest.mark.parametrize("ttl", [None, timedelta(hours=1)], ids=["for ever", "with a time to live"])
async def test_what_a_full_session_refuses_has_changed_nothing(
    path: Path, change: str, ttl: timedelta | None
) -> None:
    async with open_store(f"sqlite:///{path}", ttl=ttl) as store:
        await store.append("s", [Message("user", "first"), Message("user", "last")])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE recollect_messages SET place = place - 2 + ? WHERE place & 3 = 2", (rows.SEQUENCE_MAX,)
        )
        connection.commit()
    async with open_store(f"sqlite:///{path}", ttl=ttl) as store:
        before = await everything(store, path)
        assert before[0][-1].sequence == rows.SEQUENCE_MAX
        with pytest.raises(Refused, match="full after"):
            await FULL[change](store)
        assert await everything(store, path) == before


async def everything(store: Any, path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        sessions = connection.execute("SELECT * FROM recollect_sessions").fetchall()
    return [await store.history("s"), await store.describe("s"), sessions]


def slowly(step: Callable[..., Any], begun: threading.Event, ended: threading.Event) -> Callable[..., Any]:
    def slow(*given: Any, **named: Any) -> Any:
        answer = step(*given, **named)
        begun.set()
        time.sleep(0.2)
        ended.set()
        return answer

    return slow


IN_A_TRANSACTION: dict[str, tuple[str, Callable[[SyncStore, str], object]]] = {
    "append": (
        "store.SqliteStore._begun",
        lambda store, url: store.append("s", [Message("user", "x")], turn="t"),
    ),
    "fork": ("store.SqliteStore._begun", lambda store, url: store.fork("s", "new")),
    "short read": ("store.history_rows", lambda store, url: store.history("s")),
    "long read": ("changes.records_with", lambda store, url: store.find("s", "x")),
    "erasure": ("erasing._erase_rows", lambda store, url: store.forget("s", erase=True)),
    "opening": ("file.check_columns", lambda store, url: open_sync(url).close()),
}


@pytest.mark.parametrize("call", IN_A_TRANSACTION)
def test_a_fork_waits_until_no_thread_is_in_a_transaction(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """What is locked in SQLite's memory at that moment would stay locked in the child."""
    monkeypatch.setattr(forking, "WAIT_MAX_S", 30.0)
    where, use = IN_A_TRANSACTION[call]
    url = f"sqlite:///{path}"
    begun, ended = threading.Event(), threading.Event()

    def opens_its_own() -> None:
        assert ended.is_set()
        with open_sync(url, timeout_s=5) as own:
            own.append("of the fork", [Message("user", "x")])

    with open_sync(url) as store:
        store.append("s", [Message("user", "x")])
        with monkeypatch.context() as patched:
            owner, _, name = where.rpartition(".")
            step = getattr(
                importlib.import_module(f"recollect.stores.sqlite.{owner.partition('.')[0]}"), name, None
            )
            if step is None:
                step = getattr(SqliteStore, name)
            patched.setattr(f"recollect.stores.sqlite.{where}", slowly(step, begun, ended))
            thread = threading.Thread(target=use, args=(store, url), daemon=True)
            thread.start()
            assert begun.wait(20)
            assert in_a_fork(opens_its_own) == 0
            thread.join(20)
        assert len(store.history("of the fork")) == 1


def test_a_fork_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "WAIT_MAX_S", 0.01)
    begun, ended = threading.Event(), threading.Event()

    def holds() -> None:
        with forking.at_work():
            begun.set()
            ended.wait(20)

    thread = threading.Thread(target=holds)
    thread.start()
    assert begun.wait(20)
    with forking.at_work():  # whoever forks in a transaction of its own does not wait for itself
        assert in_a_fork(lambda: None) == 0
    assert not ended.is_set()
    ended.set()
    thread.join()
    with open_sync(f"sqlite:///{path}") as store:
        store.append("s", [Message("user", "x")])


async def test_sweep_looks_at_no_session_twice(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/memory.db", ttl=timedelta(milliseconds=1)) as store:
        assert isinstance(store, SqliteStore)
        for number in range(250):
            await store.append(f"s{number}", [Message("user", "x")])
        asked: list[int] = []
        read = store._read

        async def noted(query: Any, **options: Any) -> Any:
            if getattr(query, "func", None) is rows.expired_sessions:
                asked.append(query.keywords["above"])
            return await read(query, **options)

        store._read = noted  # type: ignore[method-assign]
        deadline = time.monotonic() + 30
        while await store.state("s249") is not SessionState.EXPIRED:
            assert time.monotonic() < deadline
        assert await store.sweep() == 250
    assert asked == [0, 100, 200, 250]


def test_a_store_can_be_closed_after_its_event_loop_was(path: Path) -> None:
    """The loop was closed in the middle of an append that waited for a lock, so the task that runs it never ends."""

    async def use(store: Any) -> Any:
        store = store or await open_store(f"sqlite:///{path}")
        await store.append("a", [Message("user", "hello")])
        return store

    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(use(None))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        append = loop.create_task(use(store))
        loop.run_until_complete(asyncio.wait([append], timeout=0.2))
        assert not append.done()
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # that is the point
        loop.close()
    asyncio.run(asyncio.wait_for(store.close(), 30))

    async def kept() -> int:
        async with open_store(f"sqlite:///{path}") as again:
            return len(await again.history("a"))

    assert asyncio.run(kept()) in (1, 2)
