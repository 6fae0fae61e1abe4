"""Each kind of damage, planted in a live engine, is told by its name; the same memory without it is not accused."""

import sqlite3
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from recollect import Message, open_store
from recollect.audit import AuditFinding, audit
from recollect.errors import CannotOpen, Refused, Unreadable
from recollect.message import encode
from recollect.tombstone import tombstone
from recollect.verify.engines import Engine
from tests.audit.memories import STORES, Memory, memory_of, said, written


@pytest.fixture(params=STORES)
async def memory(
    request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path
) -> Memory:
    made = await memory_of(request.param, engine_of, tmp_path)
    async with open_store(made.url) as store:
        await written(store)
    assert await made.names() == []  # the healthy twin
    return made


async def remove(memory: Memory, *sequences: int) -> None:
    if memory.kind == "sqlite":
        for sequence in sequences:
            memory.sqlite("DELETE FROM recollect_messages WHERE place = ?", 1 << 32 | sequence)
    elif memory.kind == "redis":
        with memory.redis() as hands:
            key = memory.key("s", "m")
            for element in [hands.lindex(key, sequence - 1) for sequence in sequences]:
                hands.lrem(key, 1, element)
    else:
        for sequence in sequences:
            await memory.postgres(
                f"DELETE FROM recollect_messages WHERE session_id = 1 AND sequence = {sequence}"
            )


async def overwrite(memory: Memory, sequence: int, record: bytes) -> None:
    if memory.kind == "sqlite":
        memory.sqlite("UPDATE recollect_messages SET record = ? WHERE place = ?", record, 1 << 32 | sequence)
    elif memory.kind == "redis":
        with memory.redis() as hands:
            hands.lset(memory.key("s", "m"), sequence - 1, b"%d %b" % (sequence, record))
    else:
        await memory.postgres(
            f"UPDATE recollect_messages SET record = '\\x{record.hex()}' WHERE session_id = 1 AND sequence = {sequence}"
        )


async def record_of(memory: Memory, sequence: int) -> bytes:
    async with open_store(memory.url) as store:
        message = (await store.history("s"))[sequence - 1].message
    assert isinstance(message, Message)
    return encode(message)


async def only(memory: Memory, name: str) -> AuditFinding:
    report = await memory.audit()
    found = [finding for finding in report.findings if finding.level == "damage"]
    assert [finding.name for finding in found] == [name]
    assert (report.status, report.exit_code()) == ("violated", 1)
    return found[0]


async def test_a_whole_turn_that_is_gone_is_a_gap(memory: Memory) -> None:
    await remove(memory, 4, 5, 6)
    found = await only(memory, "gap")
    assert (found.session, found.first, found.last) == ("s", 4, 6)


async def test_a_turn_that_is_torn_is_a_half_turn(memory: Memory) -> None:
    await remove(memory, 5)
    found = await only(memory, "half-turn")
    assert (found.session, found.first, found.last) == ("s", 5, 5)
    assert "4 to 6" in found.sentence


async def test_the_oldest_end_that_is_gone_is_a_gap(memory: Memory) -> None:
    await remove(memory, 1, 2, 3)
    assert (await only(memory, "gap")).first == 1


async def test_the_newest_end_that_is_gone(memory: Memory) -> None:
    await remove(memory, 7, 8, 9)
    found = await only(memory, "gap")
    assert (found.first, found.last) == (7, 9)


async def test_a_flipped_bit_is_a_wrong_checksum(memory: Memory) -> None:
    record = bytearray(await record_of(memory, 2))
    record[record.index(b"user")] ^= 1
    await overwrite(memory, 2, bytes(record))
    assert (await only(memory, "checksum")).first == 2


async def test_what_is_no_record_is_unreadable(memory: Memory) -> None:
    await overwrite(memory, 2, b"gibberish")
    assert (await only(memory, "unreadable")).first == 2


async def test_a_run_that_was_not_recorded_by_its_session(memory: Memory) -> None:
    """What a tool leaves that writes tombstones of its own to hide messages."""
    await overwrite(memory, 2, tombstone(2))
    await only(memory, "counters")


async def test_messages_whose_session_is_gone(memory: Memory) -> None:
    if memory.kind == "sqlite":
        memory.sqlite("DELETE FROM recollect_sessions WHERE key = ?", b"s")
        assert await memory.names() == ["orphaned"]
    elif memory.kind == "redis":
        with memory.redis() as hands:
            hands.delete(memory.key("s", "c"))
        assert await memory.names() == ["counters"]  # the list still knows its sequences
        with memory.redis() as hands:
            hands.delete(memory.key("s", "m"))
        assert await memory.names() == ["orphaned"]
    else:
        await memory.postgres("DELETE FROM recollect_sessions WHERE name = 's'")
        assert await memory.names() == ["orphaned"]
        assert (await memory.audit()).counts == {"orphaned": 2}  # messages and turn ids, not each of them


async def test_a_session_that_a_job_has_emptied(memory: Memory) -> None:
    """A cleanup job that knows the messages and not the counters."""
    if memory.kind == "sqlite":
        memory.sqlite("DELETE FROM recollect_messages WHERE place >> 32 = 1")
    elif memory.kind == "redis":
        with memory.redis() as hands:
            hands.delete(memory.key("s", "m"))
    else:
        await memory.postgres("DELETE FROM recollect_messages WHERE session_id = 1")
    found = await only(memory, "gap")
    assert (found.first, found.last) == (1, 9)


async def test_a_witness_tells_a_store_that_was_wiped_or_rolled_back(memory: Memory, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    async with open_store(memory.url, witness=witness) as store:
        await store.append("s", said("d"))
    assert await memory.names(witness=witness) == []
    witness.write_text(witness.read_text().replace(": 10}", ": 11}"))
    assert await memory.names(witness=witness) == ["replaced"]
    witness.write_text('{"store": "another", "mark": null}')
    assert await memory.names(witness=witness) == ["replaced"]


async def test_metadata_that_has_changed(memory: Memory) -> None:
    async with open_store(memory.url) as store:
        await store.annotate("s", {"title": "holiday"})
    assert await memory.names() == []
    for metadata, name in ((b'{"title":"holidaz"}', "checksum"), (b"gibberish", "unreadable")):
        told = metadata.ljust(19 + 32) if name == "checksum" else metadata  # with another one's checksum
        if memory.kind == "sqlite":
            memory.sqlite("UPDATE recollect_about SET metadata = ?", told)
        elif memory.kind == "redis":
            with memory.redis() as hands:
                hands.hset(memory.key("s", "c"), "metadata", told)
        else:
            await memory.postgres(f"UPDATE recollect_about SET metadata = '\\x{told.hex()}'")
        assert (await only(memory, name)).session == "s"


async def test_a_record_that_another_tool_has_written_is_noted(memory: Memory) -> None:
    await overwrite(memory, 2, (await record_of(memory, 2)).rstrip().replace(b'"b"', b'"x"'))
    report = await memory.audit()
    assert (report.counts, report.exit_code()) == ({"unchecked": 1}, 0)


async def test_a_store_that_has_lost_its_identity(memory: Memory) -> None:
    if memory.kind == "sqlite":
        memory.sqlite("DELETE FROM recollect_meta WHERE name = 'identity'")
    elif memory.kind == "redis":
        with memory.redis() as hands:
            hands.delete(f"{memory.namespace}:identity")
    else:
        await memory.postgres("DELETE FROM recollect_meta")
        with pytest.raises(Unreadable, match="recollect_meta is empty"):
            await memory.audit()
        return
    assert "identity is gone" in (await only(memory, "replaced")).sentence


# ---- what only one engine has


async def of_kind(kind: str, engine_of: Callable[[str], Engine], folder: Path) -> Memory:
    made = await memory_of(kind, engine_of, folder)
    async with open_store(made.url) as store:
        await written(store)
    return made


async def test_redis_elements_twice_beyond_the_counter_and_of_others(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await of_kind("redis", engine_of, tmp_path)
    key = memory.key("s", "m")
    with memory.redis() as hands:
        hands.rpush(key, b"9 {}")
        assert await memory.names() == ["counters", "twice"]
        hands.rpop(key)
        hands.rpush(key, b"12 {}")
        assert await memory.names() == ["counters"]
        hands.rpop(key)
        hands.lset(key, 0, b"of another tool")
        assert await memory.names() == ["unreadable"]
        hands.delete(key)
        hands.set(key, "another kind")
        assert await memory.names() == ["unreadable"]


async def test_redis_counters_that_moved(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await of_kind("redis", engine_of, tmp_path)
    counter = memory.key("s", "c")
    with memory.redis() as hands:
        hands.hset(counter, "hidden", 2)
        assert await memory.names() == ["counters"]
        hands.hset(counter, "hidden", 0)
        hands.hset(counter, "runs", 1)
        assert await memory.names() == ["counters"]
        hands.hset(counter, "runs", 0)
        hands.hset(counter, "last", 6)
        assert await memory.names() == ["counters"]
        hands.hset(counter, "last", 9)
        assert await memory.names() == []


async def test_redis_an_expiry_that_something_else_changed(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await of_kind("redis", engine_of, tmp_path)
    key = memory.key("s", "m")
    with memory.redis() as hands:
        hands.expire(key, 300)
        assert await memory.names() == ["expiry"]
        hands.persist(key)
        assert await memory.names() == []
        hands.hset(memory.key("s", "c"), "expires", 4_102_444_800_000)
        assert await memory.names() == ["expiry"]


async def test_redis_a_counter_or_turn_ids_that_will_expire(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await of_kind("redis", engine_of, tmp_path)
    with memory.redis() as hands:
        for kind in ("c", "t"):
            hands.expire(memory.key("s", kind), 300)
            assert await memory.names() == ["expiry"], kind
            hands.persist(memory.key("s", kind))
    async with open_store(memory.url, ttl=timedelta(hours=1)) as store:
        await store.append("s", said("d"), turn="turn-3")
        assert await memory.names() == []
        with memory.redis() as hands:
            hands.expire(memory.key("s", "t"), 3600)  # with the messages: a day too early
            assert await memory.names() == ["expiry"]
        await store.append("s", said("e"), turn="turn-4")
        await store.forget("s")  # its turn ids go on as they were
    async with open_store(memory.url) as store:
        await store.append("s", said("f"), turn="turn-5")
        assert await memory.names() == []


async def test_redis_turn_ids_that_are_gone(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await of_kind("redis", engine_of, tmp_path)
    with memory.redis() as hands:
        hands.delete(memory.key("s", "t"))
    report = await memory.audit()
    assert [(one.name, one.sentence.split(":")[0]) for one in report.findings] == [
        ("counters", "3 turn ids are gone")
    ]
    async with open_store(memory.url) as store:
        await store.append("s", said("d"), turn="turn-3")
    assert await memory.names() == ["counters"]  # it is not forgotten when the session goes on


async def test_redis_keys_of_another_kind_and_metadata_that_is_gone(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await of_kind("redis", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await store.annotate("s", {"a": 1})
        await store.annotate("other", {"a": 1})
        await store.replace("other", [])
    with memory.redis() as hands:
        hands.hdel(memory.key("s", "c"), "metadata")
        assert "metadata is gone" in (await only(memory, "counters")).sentence
    async with open_store(memory.url) as store:
        await store.annotate("s", {"a": 2})
    for kind in ("t", "f"):
        assert await memory.names() == []
        with memory.redis() as hands:
            was = hands.dump(memory.key("s", kind))
            hands.set(memory.key("s", kind), "another kind")
            assert await memory.names() == ["unreadable"], kind
            hands.restore(memory.key("s", kind), 0, was, replace=True)


async def test_redis_turn_ids_beyond_those_kept_are_not_missed(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await of_kind("redis", engine_of, tmp_path)
    async with open_store(memory.url, turns_kept=2) as store:
        for turn in range(3, 6):
            await store.append("s", said("d"), turn=f"turn-{turn}")
            await store.retract("s", await store.position("s"), turn=f"back-{turn}")
    assert await memory.names() == []


async def test_postgres_a_row_that_somebody_changed_with_sql(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    """Its checksum follows: what remains is what no store writes."""
    memory = await of_kind("postgres", engine_of, tmp_path)
    for change, healed, name in (
        ("floor = 5", "floor = 0", "half-turn"),
        ("floor = 12", "floor = 0", "counters"),
        ("expires_at = updated_at - interval '1 day'", "expires_at = NULL", "expiry"),
    ):
        await memory.postgres(f"UPDATE recollect_sessions SET {change} WHERE id = 1")
        assert await memory.names() == [name], change
        await memory.postgres(f"UPDATE recollect_sessions SET {healed} WHERE id = 1")
        assert await memory.names() == [], change
    async with open_store(memory.url, ttl=timedelta(milliseconds=1), refresh="never") as store:
        await store.forget("s")
        await store.append("s", said("over"), turn="turn-3")
    assert await memory.names() == []  # a time to live that was as short as that


async def test_postgres_a_row_that_changed_on_the_disk_is_not_taken_for_one_that_is_over(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await of_kind("postgres", engine_of, tmp_path)
    await memory.postgres(
        "ALTER TABLE recollect_sessions ALTER checked DROP EXPRESSION",
        "UPDATE recollect_sessions SET expires_at = clock_timestamp() WHERE id = 1",
    )
    assert await memory.names() == ["checksum"]


async def test_postgres_counters_that_moved(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await of_kind("postgres", engine_of, tmp_path)
    await memory.postgres("UPDATE recollect_sessions SET turns = 7 WHERE id = 1")
    assert await memory.names() == ["counters"]
    await memory.postgres("UPDATE recollect_sessions SET turns = 3, last = 6 WHERE id = 1")
    assert await memory.names() == ["counters"]
    await memory.postgres("UPDATE recollect_sessions SET last = 9, freed = 2 WHERE id = 1")
    assert await memory.names() == ["orphaned"]
    await memory.postgres("UPDATE recollect_sessions SET freed = 0 WHERE id = 1")
    assert await memory.names() == []


@pytest.mark.parametrize(
    ("index", "change"),
    [
        ("recollect_messages_pkey", "UPDATE recollect_messages SET record = record WHERE session_id = 1"),
        ("recollect_sessions_name", "INSERT INTO recollect_sessions (name, last) VALUES ('hidden', 0)"),
        ("recollect_about_pkey", "INSERT INTO recollect_about VALUES (1, '')"),
        ("recollect_turns_pkey", "INSERT INTO recollect_turns VALUES (1, 'hidden', 1, 1)"),
    ],
)
async def test_postgres_rows_that_their_index_does_not_find(
    engine_of: Callable[[str], Engine], tmp_path: Path, index: str, change: str
) -> None:
    """As a damaged index is: rows that were added while it was not kept."""
    memory = await of_kind("postgres", engine_of, tmp_path)
    ready = "UPDATE pg_index SET indisready = {} WHERE indexrelid = '{}'::regclass"
    await memory.postgres(ready.format("false", index))
    # Not heap-only, or the row would be found through its older version.
    await memory.postgres(f"DELETE FROM recollect_messages WHERE session_id = 2; {change}")
    if index == "recollect_messages_pkey":
        await memory.postgres(
            "INSERT INTO recollect_messages SELECT 2, 1, record FROM recollect_messages WHERE sequence = 1"
        )
    else:
        await memory.postgres("UPDATE recollect_sessions SET floor = last WHERE id = 2")
    await memory.postgres(ready.format("true", index))
    assert "index" in await memory.names()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE recollect_messages DROP CONSTRAINT recollect_messages_pkey",
        "DROP INDEX recollect_sessions_name",
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'recollect_turns_pkey'::regclass",
    ],
)
async def test_postgres_an_index_that_is_not_there(
    engine_of: Callable[[str], Engine], tmp_path: Path, change: str
) -> None:
    memory = await of_kind("postgres", engine_of, tmp_path)
    await memory.postgres(change)
    assert "no valid unique index" in (await only(memory, "index")).sentence


async def test_sqlite_an_index_that_misses_a_row(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await of_kind("sqlite", engine_of, tmp_path)
    assert await memory.names() == []
    memory.sqlite("PRAGMA wal_checkpoint(TRUNCATE)")
    # The index's root page is told to be an empty page of its kind, as a lost write leaves it.
    with sqlite3.connect(memory.path) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'recollect_turns_by_id'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with memory.path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x0a\x00\x00\x00\x00" + size.to_bytes(2, "big") + b"\x00")
    assert await memory.names() == ["index"]


async def test_sqlite_a_row_of_a_session_that_has_changed_on_the_disk(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await of_kind("sqlite", engine_of, tmp_path)
    for column, value, name in (
        ("floor", 3, "checksum"),  # a turn less, with nothing missing in between
        ("expires_at", 1000.0, "checksum"),  # over, it seems
        ("expires_at", 1.0, "counters"),
    ):
        assert await memory.names() == []
        # What is written with a new checksum is not taken for another release's.
        memory.sqlite(
            f"UPDATE recollect_sessions SET {column} = ?, checked = checked + 1 WHERE id = 1", value
        )
        assert await memory.names() == [name], column
        async with open_store(memory.url) as store:
            with pytest.raises(Unreadable):
                await store.history("s")
        was = 0 if column == "floor" else None
        memory.sqlite(f"UPDATE recollect_sessions SET {column} = ?, checked = checked - 1 WHERE id = 1", was)


async def test_sqlite_a_row_that_somebody_changed_with_sql(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    """It has no checksum any more, like one that an earlier release wrote."""
    memory = await of_kind("sqlite", engine_of, tmp_path)
    for column, value, was, name in (
        ("floor", 5, 0, "half-turn"),
        ("floor", 6, 0, None),  # as a replacement leaves it
        ("expires_at", time.time() - 86_400, None, "expiry"),
        ("expires_at", time.time() + 86_400, None, None),
    ):
        memory.sqlite(f"UPDATE recollect_sessions SET {column} = ? WHERE id = 1", value)
        assert await memory.names() == ([] if name is None else [name]), column
        memory.sqlite(f"UPDATE recollect_sessions SET {column} = ? WHERE id = 1", was)
    async with open_store(memory.url, ttl=timedelta(milliseconds=1), refresh="never") as store:
        await store.append("s", said("over"), turn="turn-3")
    memory.sqlite("UPDATE recollect_sessions SET checked = NULL")
    assert await memory.names() == []


async def test_sqlite_a_clock_that_was_ahead_when_something_was_written(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await of_kind("sqlite", engine_of, tmp_path)
    assert (await memory.audit()).counts == {}
    memory.sqlite("UPDATE recollect_messages SET written = written + 86400 WHERE place = ?", 1 << 32 | 9)
    report = await memory.audit()
    assert (report.counts, report.exit_code()) == ({"clock": 1}, 0)


@pytest.mark.parametrize("which", ["= 1", "= 2", "= 3", "> 0"], ids=["oldest", "middle", "newest", "all"])
async def test_sqlite_turn_ids_that_are_gone(
    engine_of: Callable[[str], Engine], tmp_path: Path, which: str
) -> None:
    memory = await of_kind("sqlite", engine_of, tmp_path)
    memory.sqlite(f"DELETE FROM recollect_turns WHERE number {which}")
    assert await memory.names() == ([] if which == "= 1" else ["counters"])
    async with open_store(memory.url) as store:
        await store.append("s", said("d"), turn="turn-4")
    assert await memory.names() == ([] if which == "= 1" else ["counters"])


async def test_sqlite_turn_ids_that_were_pruned_are_not_missed(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await of_kind("sqlite", engine_of, tmp_path)
    async with open_store(memory.url, turns_kept=2) as store:
        for turn in range(3, 6):
            await store.append("s", said("d"), turn=f"turn-{turn}")
    assert await memory.names() == []
    # A release without fingerprints prunes turns and leaves theirs.
    memory.sqlite("INSERT INTO recollect_fingerprints VALUES (1, 1, 'left')")
    assert await memory.names() == []


async def test_sqlite_a_table_that_was_dropped(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await of_kind("sqlite", engine_of, tmp_path)
    memory.sqlite("DROP TABLE recollect_turns")
    with pytest.raises(Unreadable, match="recollect_turns is gone"):
        await memory.audit()


async def test_sqlite_what_belongs_to_no_session(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await of_kind("sqlite", engine_of, tmp_path)
    for table, values in (
        ("recollect_turns", "(77, 1, 'turn', 1, 1)"),
        ("recollect_fingerprints", "(77, 1, 'f')"),
        ("recollect_about", "(77, '{}')"),
    ):
        memory.sqlite(f"INSERT INTO {table} VALUES {values}")
        assert await memory.names() == ["orphaned"], table
        memory.sqlite(f"DELETE FROM {table} WHERE session = 77")
    assert await memory.names() == []


async def test_other_addresses_are_refused() -> None:
    with pytest.raises(Refused, match="use sqlite:///"):
        await audit("http://127.0.0.1:1")
    with pytest.raises(CannotOpen, match="no such file"):
        await audit("sqlite:///no-such-folder/file.db")
