"""The files under an open SQLite store: what is taken away is noticed before anything is acknowledged, and what SQLite
and others may do with them is not."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from recollect import Message, Store, StoreReplaced, open_store
from recollect.recall import open_recall
from recollect.stores.sqlite.guard import FileGuard

BEFORE = 20
LOCKED_S = 60.0
"""How long another program waits for its turn."""


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def cut_to(size: Callable[[int], int]) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        os.truncate(log_of(path), size(log_of(path).stat().st_size))

    return cut


def replace(path: Path) -> None:
    """As a backup that is put back: the same bytes, another file."""
    copy = path.with_name("copy")
    shutil.copy(log_of(path), copy)
    copy.replace(log_of(path))


def copy_back_an_older_one(path: Path) -> None:
    raw = log_of(path).read_bytes()
    log_of(path).write_bytes(raw[: len(raw) // 2])


HARMS: dict[str, Callable[[Path], object]] = {
    "log deleted": lambda path: log_of(path).unlink(),
    "log moved away": lambda path: log_of(path).rename(path.with_name("elsewhere")),
    "log replaced": replace,
    "log emptied": cut_to(lambda size: 0),
    "log cut inside its header": cut_to(lambda size: 16),
    "log cut after its header": cut_to(lambda size: 32),
    "log cut in the middle": cut_to(lambda size: size // 2),
    "log cut by a byte": cut_to(lambda size: size - 1),
    "log overwritten by an older one": copy_back_an_older_one,
    "index of the log deleted": lambda path: Path(f"{path}-shm").unlink(),
    "file deleted": lambda path: path.unlink(),
    "file moved away": lambda path: path.rename(path.with_name("elsewhere")),
}

Use = Callable[[Store], object]

USES: dict[str, Use] = {
    "append": lambda store: store.append("s", [Message("user", "lost")]),
    "append with a turn": lambda store: store.append("s", [Message("user", "lost")], turn="t"),
    "append many": lambda store: asyncio.gather(
        *(store.append(f"s{n}", [Message("user", "lost")]) for n in range(5))
    ),
    "forget": lambda store: store.forget("s"),
    "history": lambda store: store.history("s"),
    "last": lambda store: store.history("s", last=5),
    "state": lambda store: store.state("s"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("use", USES)
async def test_harm_is_noticed_before_anything_is_acknowledged(path: Path, harm: str, use: str) -> None:
    store = await open_store(f"sqlite:///{path}")
    for number in range(BEFORE):
        await store.append("s", [Message("user", str(number))])
    HARMS[harm](path)
    for _ in range(3):
        with pytest.raises(StoreReplaced, match=r"deleted or replaced|cut short"):
            await USES[use](store)  # type: ignore[misc]
    await store.close()


@pytest.mark.parametrize("appended", [1, 2, 3])
@pytest.mark.parametrize("harm", [name for name in HARMS if "after its header" in name or "emptied" in name])
async def test_a_young_log_is_looked_after_too(path: Path, harm: str, appended: int) -> None:
    async with open_store(f"sqlite:///{path}") as earlier:
        await earlier.append("s", [Message("user", "earlier")])
        store = await open_store(f"sqlite:///{path}")
        for number in range(appended):
            await store.append("s", [Message("user", str(number))])
        HARMS[harm](path)
        with pytest.raises(StoreReplaced, match="cut short"):
            await store.append("s", [Message("user", "lost")])
        await store.close()


@pytest.mark.parametrize("harm", [name for name in HARMS if "cut" in name or "emptied" in name])
async def test_a_cut_log_does_not_damage_what_the_file_holds(path: Path, harm: str) -> None:
    """SQLite itself would write a hole into the log, and copy it over the file when it is closed."""
    store = await open_store(f"sqlite:///{path}")
    for number in range(BEFORE):
        await store.append("s", [Message("user", str(number))])
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(PASSIVE)")
    for number in range(BEFORE):
        await store.append("s", [Message("user", str(BEFORE + number))])
    HARMS[harm](path)
    for _ in range(3):
        with pytest.raises(StoreReplaced):
            await store.append("s", [Message("user", "lost")])
    await store.close()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    async with open_store(f"sqlite:///{path}") as again:
        texts = [item.message.text for item in await again.history("s") if isinstance(item.message, Message)]
    assert texts == [str(number) for number in range(len(texts))]
    assert len(texts) >= BEFORE


@pytest.mark.parametrize("harm", ["log deleted", "log emptied", "file deleted"])
async def test_long_term_memory_notices_too(path: Path, harm: str) -> None:
    recall = await open_recall(f"sqlite:///{path}")
    for number in range(3):
        await recall.add("xiao", [f"fact {number}"])
    HARMS[harm](path)
    with pytest.raises(StoreReplaced):
        await recall.add("xiao", ["lost"])
    with pytest.raises(StoreReplaced):
        await recall.memories("xiao")
    await recall.close()


def checkpoint(kind: str) -> Callable[[sqlite3.Connection, Path], object]:
    return lambda other, path: other.execute(f"PRAGMA wal_checkpoint({kind})").fetchall()


def write_with_a_size_limit(other: sqlite3.Connection, path: Path) -> None:
    other.execute("PRAGMA journal_size_limit = 8192")
    other.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    for _ in range(3):
        other.execute("INSERT OR REPLACE INTO recollect_meta VALUES ('other', hex(randomblob(2000)))")


def write_and_checkpoint(other: sqlite3.Connection, path: Path) -> None:
    for kind in ("TRUNCATE", "RESTART", "FULL", "TRUNCATE"):
        other.execute("INSERT OR REPLACE INTO recollect_meta VALUES ('other', hex(randomblob(2000)))")
        other.execute(f"PRAGMA wal_checkpoint({kind})").fetchall()


def litter(other: sqlite3.Connection, path: Path) -> None:
    path.with_name("unrelated").write_text("x")
    path.with_name("unrelated").unlink()


def link(other: sqlite3.Connection, path: Path) -> None:
    os.link(log_of(path), path.with_name("link"))
    path.with_name("link").unlink()


HARMLESS: dict[str, Callable[[sqlite3.Connection, Path], object]] = {
    **{f"checkpoint {kind}": checkpoint(kind) for kind in ("PASSIVE", "FULL", "RESTART", "TRUNCATE")},
    "size limit": write_with_a_size_limit,
    "writes and checkpoints": write_and_checkpoint,
    "other files in the folder": litter,
    "a hard link that comes and goes": link,
    "vacuum": lambda other, path: other.execute("VACUUM"),
}


@pytest.mark.parametrize("deed", HARMLESS)
async def test_what_others_may_do_is_not_taken_for_harm(path: Path, deed: str) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        acknowledged = 0
        for number in range(40):
            await store.append("s", [Message("user", "x" * 500)], turn=f"t{number}" if number % 3 else None)
            acknowledged += 1
            if number % 5 == 0:
                with closing(sqlite3.connect(path, isolation_level=None, timeout=LOCKED_S)) as other:
                    HARMLESS[deed](other, path)
                assert len(await store.history("s")) == acknowledged
            elif number % 7 == 0:  # reads between the deed and the next write, and none
                assert len(await store.history("s", last=100)) == acknowledged
    async with open_store(f"sqlite:///{path}") as again:
        assert len(await again.history("s")) == acknowledged


async def test_stores_and_checkpoints_at_the_same_time_are_not_taken_for_harm(path: Path) -> None:
    ended = False
    appended = asyncio.Event()

    def truncate() -> None:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=LOCKED_S)) as other:
            other.execute("PRAGMA journal_size_limit = 0")
            other.execute("INSERT OR REPLACE INTO recollect_meta VALUES ('other', hex(randomblob(100)))")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    async def checkpointing() -> None:
        """One after each append: SQLite's locks are not fair, and a loop without end may keep a store waiting."""
        while not ended:
            await appended.wait()
            appended.clear()
            await asyncio.to_thread(truncate)

    async with (
        open_store(f"sqlite:///{path}") as one,
        open_store(f"sqlite:///{path}?policy=wal-normal") as two,
    ):
        task = asyncio.create_task(checkpointing())

        async def use(store: Store, name: str) -> None:
            for number in range(150):
                await store.append(name, [Message("user", str(number))])
                appended.set()
                if number % 10 == 0:
                    assert len(await store.history(name)) == number + 1

        await asyncio.gather(use(one, "a"), use(two, "b"), use(one, "c"))
        ended = True
        appended.set()
        await task
        for name in "abc":
            assert len(await two.history(name)) == 150


@pytest.mark.parametrize("seen_elsewhere", [False, True])
async def test_a_log_that_is_begun_again_while_it_is_looked_at(
    path: Path, monkeypatch: pytest.MonkeyPatch, seen_elsewhere: bool
) -> None:
    """Another program empties the log and writes to it; the store comes in between, on one of its threads or both."""
    ask_sqlite = FileGuard._emptied_rightly
    written = 0

    def write_first(guard: FileGuard, header: bytes) -> bool:
        nonlocal written
        written += other.execute("INSERT OR REPLACE INTO recollect_meta VALUES ('other', 'x')").rowcount
        if seen_elsewhere:
            assert guard.harm_before_write() is None
        return ask_sqlite(guard, header)

    async with open_store(f"sqlite:///{path}") as store:
        for number in range(BEFORE):
            await store.append("s", [Message("user", str(number))])
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            monkeypatch.setattr(FileGuard, "_emptied_rightly", write_first)
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            assert len(await store.history("s")) == BEFORE
            assert written == 1
        await store.append("s", [Message("user", "kept")])
        assert len(await store.history("s")) == BEFORE + 1


async def test_a_path_that_is_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "memory.db")
    store = await open_store(f"sqlite:///{tmp_path}/link.db")
    await store.append("s", [Message("user", "kept")])
    await store.append("s", [Message("user", "kept")])
    log_of(tmp_path / "real" / "memory.db").unlink()
    with pytest.raises(StoreReplaced, match=r"memory\.db-wal was deleted"):
        await store.append("s", [Message("user", "lost")])
    await store.close()


@pytest.mark.parametrize("policy", ["delete-extra", "delete-full"])
async def test_without_a_log_the_file_itself_is_looked_after(path: Path, policy: str) -> None:
    store = await open_store(f"sqlite:///{path}?policy={policy}")
    for _ in range(3):
        await store.append("s", [Message("user", "kept")])
    path.unlink()
    with pytest.raises(StoreReplaced, match="deleted or replaced"):
        await store.append("s", [Message("user", "lost")])
    await store.close()
