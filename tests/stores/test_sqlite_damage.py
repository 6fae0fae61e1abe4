"""A file whose own structure is damaged is refused: it would show less than was written, without a word."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from recollect import CannotOpen, Message, NotWritten, Unreadable, open_store
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


# ---- a session's own row


@pytest.mark.parametrize(
    "flip",
    [
        "floor = floor + 1",
        "ended = 'expired'",
        "expires_at = 1e9",
        "expires_at = expires_at + 0.5",
        "marked = 1 - marked",
        "id = id + 64",
        "checked = checked + 1",
    ],
)
async def test_a_session_row_that_changed_on_the_disk_is_unreadable_and_not_empty(
    tmp_path: Path, flip: str
) -> None:
    path = tmp_path / "memory.db"
    ttl = timedelta(hours=1) if "expires_at +" in flip else None
    async with open_store(f"sqlite:///{path}", ttl=ttl) as store:
        await store.append("s", [Message("user", "a"), Message("user", "b")])
        await store.append("other", [Message("user", "c")])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER recollect_unchecked")  # a disk runs no trigger
        connection.execute(f"UPDATE recollect_sessions SET {flip} WHERE key = CAST('s' AS BLOB)")
        connection.commit()
    if flip.startswith("id"):
        with pytest.raises(Unreadable, match="which there is not"):
            await open_store(f"sqlite:///{path}", ttl=ttl)
        return
    async with open_store(f"sqlite:///{path}", ttl=ttl) as store:
        with pytest.raises(Unreadable, match="checksum does not match"):
            await store.history("s")
        with pytest.raises(NotWritten, match="checksum does not match"):
            await store.append("s", [Message("user", "d")])
        assert len(await store.history("other")) == 1


async def test_what_an_older_release_or_a_hand_writes_into_the_row_is_believed(path: Path) -> None:
    """Their statements leave no checksum behind, rather than one that does not fit."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE recollect_sessions SET floor = 1, ended = 'forgotten' WHERE id = 7")
        connection.execute("UPDATE recollect_sessions SET repeats = repeats + 1 WHERE id = 8")
        connection.commit()
        kept = connection.execute("SELECT id FROM recollect_sessions WHERE checked IS NOT NULL").fetchall()
    assert (7,) not in kept
    assert (8,) in kept
    async with open_store(f"sqlite:///{path}") as store:
        assert await store.history("s6") == []
        assert len(await store.history("s7")) == 1


async def test_every_change_leaves_a_row_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with open_store(f"sqlite:///{path}", ttl=timedelta(hours=1), refresh="read") as store:
        for session in ("a", "b", "c", "d", "e"):
            await store.append(session, [Message("user", "1"), Message("user", "2")], turn="t")
        await store.retract("a", 1)
        await store.replace("b", [Message("user", "3")])
        await store.annotate("c", {"k": 1})
        await store.fork("c", "f")
        await store.forget("d")
        await store.append("d", [Message("user", "4")])
        await store.history("e")
        await store.forget("e", erase=True)
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT key, checked FROM recollect_sessions").fetchall()
        assert len(rows) == 6
        assert all(checked is not None for _, checked in rows)
        found = {session: len(await store.history(session)) for session in "abcdef"}
    assert found == {"a": 1, "b": 1, "c": 2, "d": 1, "e": 0, "f": 2}


async def test_the_newest_message_of_all_under_another_number_is_missed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE recollect_messages SET place = place + (64 << 32) "
            "WHERE place = (SELECT max(place) FROM recollect_messages)"
        )
        connection.commit()
    with pytest.raises(Unreadable, match="message 1 of session number 84, which there is not"):
        await open_store(f"sqlite:///{path}")


@pytest.mark.parametrize("flip", ["first = first + 1", "last = last + 2"])
async def test_a_turn_whose_places_changed_on_the_disk_gives_no_receipt(tmp_path: Path, flip: str) -> None:
    path = tmp_path / "memory.db"
    said = [Message("user", "a"), Message("user", "b")]
    async with open_store(f"sqlite:///{path}") as store:
        await store.append("s", said, turn="t")
        await store.append("s", said, turn="u")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE recollect_turns SET {flip} WHERE turn = CAST('u' AS BLOB)")
        connection.commit()
    async with open_store(f"sqlite:///{path}") as store:
        assert (await store.append("s", said, turn="t")).first == 1
        with pytest.raises(NotWritten, match="the turn's row has changed on the disk"):
            await store.append("s", said, turn="u")


# ---- the schema is text in the file, too


@pytest.mark.parametrize(
    ("written", "flipped"),
    [
        (b"    place INTEGER PRIMARY KEY,", b"    place INTEGER PRIMASY KEY,"),
        (b"    place INTEGER PRIMARY KEY,", b"    place INTEGES PRIMARY KEY,"),
        (b"    id INTEGER PRIMARY KEY CHECK", b"    id INTEGEP PRIMARY KEY CHECK"),
    ],
)
async def test_a_primary_key_that_is_none_any_more_is_not_an_empty_memory(
    path: Path, written: bytes, flipped: bytes
) -> None:
    change(path, written, flipped)
    with pytest.raises(Unreadable, match=r"is damaged: column|is malformed"):
        await open_store(f"sqlite:///{path}")


async def test_the_same_of_long_term_memory(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    rows = await SqliteRows.open(f"sqlite:///{path}", Options())
    await rows.close()
    whole = path.read_bytes()
    change(path, b"    sequence INTEGER PRIMARY KEY,", b"    sequence INTEGER PRIMCRY KEY,")
    with pytest.raises(Unreadable, match="column sequence of table recall_memories"):
        await SqliteRows.open(f"sqlite:///{path}", Options())
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE recall_memories RENAME TO recall_memoriez")
    with pytest.raises(Unreadable, match="has no table recall_memories, which was made with the others"):
        await SqliteRows.open(f"sqlite:///{path}", Options())
