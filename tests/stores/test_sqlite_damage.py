"""A file whose own structure is damaged is refused: it would show less than was written, without a word."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from recollect import CannotOpen, Message, Unreadable, open_store
from recollect.recall.rows_sqlite import SqliteRows
from recollect.store import Options
from recollect.stores.sqlite import file


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    async with open_store(f"sqlite:///{path}") as store:
        for number in range(20):
            await store.append(f"s{number}", [Message("user", f"text {number}")], turn="t")
    return path


def change(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) >= 1
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("table", ["messages", "turns", "meta"])
async def test_a_table_whose_name_has_changed_is_not_made_anew(path: Path, table: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"ALTER TABLE recollect_{table} RENAME TO recollect_{table[:-1]}_")
    with pytest.raises(Unreadable, match=f"has no table recollect_{table}, which was made with the others"):
        await open_store(f"sqlite:///{path}")
    with pytest.raises(Unreadable, match="is damaged"):
        await SqliteRows.open(f"sqlite:///{path}", Options())


async def test_an_index_that_does_not_have_a_session_is_found(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_recollect_sessions_1'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    at = content.index(b"s7", (page - 1) * size, page * size)
    content[at + 1] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=r"is damaged: .*index"):
        await open_store(f"sqlite:///{path}")


async def test_a_name_that_is_no_text_any_more_is_told_as_an_error_of_ours(path: Path) -> None:
    change(path, b"ON recollect_turns", b"ON recol\xecect_turns")
    with pytest.raises(Unreadable):
        await open_store(f"sqlite:///{path}")


async def test_a_file_that_was_made_by_another_program_can_still_become_a_store(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (text TEXT)")
    async with open_store(f"sqlite:///{path}") as store:
        await store.append("s", [Message("user", "hello")])
        assert len(await store.history("s")) == 1


async def test_a_lock_is_waited_for_while_the_file_is_checked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of long-term memory too: with a rollback journal, a writer keeps readers out while it commits."""
    check, busy = file._check_whole, sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    locked = [busy, busy]

    def locked_at_first(connection: sqlite3.Connection, path: Path) -> None:
        if locked:
            raise locked.pop()
        check(connection, path)

    monkeypatch.setattr(file, "_check_whole", locked_at_first)
    rows = await SqliteRows.open(f"sqlite:///{path}", Options())
    await rows.close()
    assert not locked


@pytest.mark.parametrize("moment", [0, 1])
async def test_a_session_that_seems_to_have_ended_in_1970_is_damaged_not_empty(
    path: Path, moment: int
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE recollect_sessions SET expires_at = ? WHERE key = CAST('s7' AS BLOB)", (moment,)
        )
        connection.commit()
    async with open_store(f"sqlite:///{path}") as store:
        with pytest.raises(Unreadable, match="the session's row was changed"):
            await store.history("s7")


async def test_an_error_of_pythons_own_module_is_told_as_ours(path: Path) -> None:
    """It has no code of SQLite's: the identity is no UTF-8."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE recollect_meta SET value = CAST(x'ff' AS TEXT) WHERE name = 'identity'")
        connection.commit()
    with pytest.raises(CannotOpen):
        await open_store(f"sqlite:///{path}")
