"""Rows that have changed on the disk, where no checksum of the engine tells."""

import struct
from datetime import timedelta
from hashlib import sha256

import asyncpg
import pytest

from recollect import Damaged, Message, NotWritten, Stored, Unreadable, open_store
from recollect.message import encode
from recollect.stores.postgres import schema
from recollect.stores.postgres.migrations.versions import r0004_checksums
from recollect.stores.postgres.rows import placing, placing_marked
from recollect.tombstone import tombstone
from recollect.verify import engines
from tests.stores.postgres_place import Place


def read(numbers: list[int], counted: int, *, marked: bool, tombstones: tuple[int, ...] = ()) -> list[Stored]:
    """The history of rows whose texts are their places in the index, from 1."""
    records = [
        tombstone(place) if place in tombstones else encode(Message("user", str(place)))
        for place in range(1, len(numbers) + 1)
    ]
    rows = [(counted, 0, *row) for row in zip(numbers, records, strict=True)]
    stored: list[Stored] = []
    steps = placing_marked(stored, rows[::-1], 0, 1_000) if marked else placing(stored, rows, 0, 1_000)
    for _ in steps:
        pass
    return stored


def shown(stored: list[Stored]) -> list[str | int]:
    """Texts of messages that are in their places, and the sequences of damaged ones."""
    return [
        item.sequence
        if isinstance(item.message, Damaged)
        else f"{item.message.text}{'' if item.message.text == str(item.sequence) else ' misplaced'}"
        for item in stored
    ]


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1, 2, 3, 4], ["1", "2", "3", "4"]),
        ([1, 2, 2051, 4], ["1", "2", 3, "4"]),
        ([1, 2, 3, 0], ["1", "2", "3", 4]),
        ([1, 0, 3, 0], ["1", 2, "3", 4]),
        ([0, 2, 3, 4], [1, "2", "3", "4"]),
        ([9, 2, 3, 4], [1, "2", "3", "4"]),
        ([1, 4, 3, 4], ["1", 2, "3", 4]),
        ([1, 3, 3, 4], ["1", 2, 3, "4"]),
    ],
)
def test_a_message_is_never_shown_in_anothers_place(
    numbers: list[int], expected: list[str | int], *, marked: bool
) -> None:
    assert shown(read(numbers, 4, marked=marked)) == expected


def test_tombstones_beside_a_changed_number_stay_silent() -> None:
    assert shown(read([1, 2, 2051, 4, 5], 5, marked=True, tombstones=(2,))) == ["1", 3, "4", "5"]


@pytest.mark.parametrize("marked", [False, True])
def test_messages_above_the_counter_are_shown_as_damaged(*, marked: bool) -> None:
    assert shown(read([1, 2, 3, 4, 5], 3, marked=marked)) == ["1", "2", "3", 4, 5]


async def test_a_row_of_another_session_is_damaged() -> None:
    """The index leads to it, and without checksums of its own PostgreSQL shows it."""
    engine = engines.create("postgres@16", "default")
    try:
        url = engine.start().url
        async with open_store(url) as store:
            for name in ("a", "b", "c"):
                await store.append(name, [Message("user", f"{name}{number}") for number in range(3)])
            await store.retract("c", 1)
        connection = await asyncpg.connect(url)
        rows = await connection.fetch("SELECT name, id FROM recollect_sessions")
        await connection.execute("CHECKPOINT")
        relation = await connection.fetchval("SELECT pg_relation_filepath('recollect_messages')")
        await connection.close()
        engine.stop()
        numbers = {name.decode(): number for name, number in rows}
        assert engine.data is not None
        path = engine.data / relation
        content = path.read_bytes()
        for name in ("a", "c"):  # the second message of each is the other's now
            mine, other = (struct.pack("<qq", numbers[whose], 2) for whose in (name, "b"))
            assert content.count(mine) == 1
            content = content.replace(mine, other)
        path.write_bytes(content)
        async with open_store(engine.start().url) as store:
            for last in (None, 10):
                for name in ("a", "c"):
                    found = {item.sequence: item.message for item in await store.history(name, last=last)}
                    assert isinstance(found[2], Damaged), (name, last, found)
                    assert isinstance(found[3], Message)
                assert [item.sequence for item in await store.history("b", last=last)] == [1, 2, 3]
    finally:
        engine.close()


def row_of(table: bytearray, number: int, name: str) -> int:
    """Where the row of a session, with a name of one byte, begins."""
    begin = struct.pack("<q", number) + bytes([2 * 2 + 1]) + name.encode()
    assert table.count(begin) == 1
    return table.index(begin)


def entry_of(index: bytearray, name: str) -> int:
    """Where the index says which row has the name: before the digest are its length and the size of the entry."""
    digest = sha256(name.encode()).digest()
    assert index.count(digest) == 1
    return index.index(digest) - 9


FLOOR, EXPIRES_AT = 24, 48
"""Where they are in such a row."""


async def test_a_sessions_own_row_is_not_believed_once_it_has_changed() -> None:
    engine = engines.create("postgres@16", "default")
    try:
        url = engine.start().url
        async with open_store(url) as store, open_store(url, ttl=timedelta(days=1)) as mortal:
            for name in "abcde":
                of = mortal if name == "d" else store
                await of.append(name, [Message("user", f"{name}{number}") for number in range(3)])
        connection = await asyncpg.connect(url)
        await connection.execute("VACUUM FULL recollect_sessions")
        await connection.execute("ALTER DATABASE postgres SET enable_seqscan = off")  # a large table's plans
        await connection.execute("CHECKPOINT")
        rows = await connection.fetch("SELECT name, id FROM recollect_sessions")
        relations = "SELECT pg_relation_filepath($1::regclass)"
        table_file = await connection.fetchval(relations, "recollect_sessions")
        index_file = await connection.fetchval(relations, "recollect_sessions_name")
        await connection.close()
        engine.stop()
        numbers = {name.decode(): number for name, number in rows}
        assert engine.data is not None
        table, index = (bytearray((engine.data / file).read_bytes()) for file in (table_file, index_file))
        struct.pack_into("<q", table, row_of(table, numbers["a"], "a"), numbers["e"])
        struct.pack_into("<q", table, row_of(table, numbers["c"], "c") + FLOOR, 2)
        struct.pack_into("<q", table, row_of(table, numbers["d"], "d") + EXPIRES_AT, 0)
        index[entry_of(index, "b") : entry_of(index, "b") + 6] = index[entry_of(index, "e") :][:6]
        (engine.data / table_file).write_bytes(table)
        (engine.data / index_file).write_bytes(index)
        async with open_store(engine.start().url) as store:
            await store.sweep()
            for name in "abcd":
                for last in (None, 10):
                    with pytest.raises(Unreadable, match="changed on the disk"):
                        await store.history(name, last=last)
                for read in (store.describe, store.position, store.state):
                    with pytest.raises(Unreadable, match="changed on the disk"):
                        await read(name)
                with pytest.raises(Unreadable, match="changed on the disk"):
                    await store.find(name, "no such id")
                with pytest.raises(NotWritten, match="changed on the disk"):
                    await store.append(name, [Message("user", "more")])
                with pytest.raises(NotWritten, match="changed on the disk"):
                    await store.forget(name)
            kept = [item.message for item in await store.history("e")]
            assert [message.text for message in kept if isinstance(message, Message)] == ["e0", "e1", "e2"]
            connection = await asyncpg.connect(engine.endpoint.url)
            assert await connection.fetchval("SELECT count(*) FROM recollect_messages") == 15
            await connection.close()
    finally:
        engine.close()


def test_the_store_computes_the_checksum_of_the_migration() -> None:
    assert schema.checksum("s.", "$1") == r0004_checksums.checksum("s.", "$1")


async def test_the_last_messages_are_shown_with_what_is_wrong(place: Place) -> None:
    async def last_of(name: str) -> list[str | int]:
        async with open_store(place.url) as store:  # it has not been told anything
            return shown(await store.history(name, last=100))

    async with open_store(place.url) as store:
        for name in ("hole", "above", "none"):
            await store.append(name, [Message("user", str(number)) for number in range(1, 201)])
    await place.direct.execute(
        "DELETE FROM recollect_messages m USING recollect_sessions s "
        "WHERE s.id = m.session_id AND s.name = 'hole' AND sequence BETWEEN 110 AND 160"
    )
    assert await last_of("hole") == [*map(str, range(101, 110)), 110, *map(str, range(161, 201))]
    await place.direct.execute("UPDATE recollect_sessions SET last = 150 WHERE name = 'above'")
    assert await last_of("above") == [*map(str, range(51, 151)), *range(151, 201)]
    await place.direct.execute("UPDATE recollect_sessions SET last = 0 WHERE name = 'none'")
    assert await last_of("none") == list(range(1, 201))


async def test_the_last_messages_are_read_along_the_index(place: Place) -> None:
    """Even of a large table that PostgreSQL knows nothing of yet: collecting and sorting them would cost more."""
    async with open_store(place.url) as store:
        await store.append("s", [Message("user", "hello")])
    direct = place.direct
    await direct.execute("ALTER TABLE recollect_messages SET (autovacuum_enabled = off)")
    await direct.execute("INSERT INTO recollect_messages SELECT 7, n, 'x' FROM generate_series(1, 200000) n")
    await direct.execute("SET plan_cache_mode = force_generic_plan")
    await direct.execute(f"PREPARE read AS {schema.HISTORY}")
    lines = [row[0] for row in await direct.fetch("EXPLAIN (VERBOSE) EXECUTE read('', 0, 100)")]
    plan = "\n".join(lines)
    assert "Index Scan using recollect_messages_pkey" in plan, plan
    assert "Sort" not in plan, plan
    assert "Output: (CASE WHEN (s.checked" in lines[1], (
        "the checksum is computed below, once and not for each message"
    )


async def test_metadata_that_has_become_null_is_not_taken_for_none(place: Place) -> None:
    """As a flipped bit in the row's header makes it: its index still leads to the row."""
    async with open_store(place.url) as store:
        await store.append("s", [Message("user", "hello")])
        await store.annotate("s", {"topic": "rot"})
        await place.direct.execute("ALTER TABLE recollect_about ALTER metadata DROP NOT NULL")
        await place.direct.execute("UPDATE recollect_about SET metadata = NULL")
        with pytest.raises(Unreadable, match="metadata is not what was written"):
            await store.describe("s")
