"""An audit changes nothing: with no right to write it works as well, and not a byte is another one afterwards."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from recollect import open_store
from recollect.audit import audit
from recollect.audit.sqlite import SqliteAudit, copied
from recollect.errors import RecollectError
from recollect.verify.engines import Engine
from tests.audit.memories import Memory, memory_of, said, written
from tests.doctor.bytes import contents


async def test_a_sqlite_file_that_nobody_has_open_is_not_touched(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
    before = contents(tmp_path)
    assert list(before) == [memory.path.name]  # no log: it was closed
    assert (await memory.audit()).messages == 10
    assert contents(tmp_path) == before


async def test_a_sqlite_file_with_a_log_that_nobody_has_open_is_read_with_the_log_and_not_touched(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    """As a killed process, a copy or a restore leaves it: the newest messages are in the log only."""
    memory = await memory_of("sqlite", engine_of, tmp_path)
    restored = tmp_path / "restored"
    restored.mkdir()
    async with open_store(memory.url) as store:
        await written(store)
        for path in (memory.path, memory.path.with_name(f"{memory.path.name}-wal")):
            shutil.copy2(path, restored)
    there = Memory("sqlite", memory.engine, f"sqlite:///{restored / memory.path.name}", memory.namespace)
    before = contents(restored)
    assert len(before) == 2
    assert (await there.audit()).messages == 10
    assert contents(restored) == before
    await copied(there.url, tmp_path / "copy.db", 10.0)
    assert contents(restored) == before
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT count(*) FROM recollect_messages").fetchone() == (10,)


async def test_a_sqlite_file_with_a_log_that_is_opened_meanwhile_is_read_again(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
        kept = {path: path.read_bytes() for path in (memory.path, Path(f"{memory.path}-wal"))}
    for path, content in kept.items():
        path.write_bytes(content)
    source = await SqliteAudit.open(memory.url, 10.0)
    assert await source.position(b"s") == 9
    async with open_store(memory.url) as store:
        await store.append("late", said("a"))
        assert await source.position(b"late") == 1
    assert await source.position(b"late") == 1
    await source.close()


async def test_a_sqlite_file_in_use_keeps_its_bytes(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
        before = {name: of for name, of in contents(tmp_path).items() if not name.endswith("-shm")}
        assert len(before) == 2  # the file and its log
        assert (await memory.audit()).messages == 10
        assert before == {name: of for name, of in contents(tmp_path).items() if not name.endswith("-shm")}


async def test_a_sqlite_file_that_is_opened_meanwhile_is_read_beside_the_writer(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
    source = await SqliteAudit.open(memory.url, 10.0)
    assert await source.position(b"s") == 9
    async with open_store(memory.url) as store:
        await written(store)
        await store.append("late", said("a"))
        assert await source.position(b"late") == 1
    assert await source.position(b"late") == 1
    await source.close()


async def test_the_connection_to_sqlite_cannot_write(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
        source = await SqliteAudit.open(memory.url, 10.0)
        with pytest.raises(RecollectError) as refused:
            await source._read(lambda reader: reader.execute("DELETE FROM recollect_messages"))
        assert isinstance(refused.value.__cause__, sqlite3.OperationalError)
        assert "readonly" in str(refused.value)
        await source.close()


async def test_a_redis_user_without_any_right_to_write(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await memory_of("redis", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
    user = f"auditor-{memory.namespace}"
    with memory.redis() as hands:
        hands.execute_command(
            *("ACL", "SETUSER", user, "on", ">secret", f"~{memory.namespace}:*"),
            *("+@read", "+@connection", "+@transaction", "+info", "+time"),
        )
        changes = hands.info("persistence")["rdb_changes_since_last_save"]
        url = memory.url.partition("@")[2] or memory.url.partition("//")[2]
        report = await audit(f"unix://{user}:secret@{url}", rate=None)
        assert (report.messages, report.counts) == (10, {})
        assert hands.info("persistence")["rdb_changes_since_last_save"] == changes
        hands.execute_command("ACL", "SETUSER", user, "-lrange")
        with pytest.raises(RecollectError, match="lrange"):
            await audit(f"unix://{user}:secret@{url}", rate=None)
        hands.execute_command("ACL", "DELUSER", user)


async def test_a_postgres_role_that_may_only_select(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await memory_of("postgres", engine_of, tmp_path)
    async with open_store(memory.url) as store:
        await written(store)
    role = f"r{memory.namespace}"
    await memory.postgres(
        f"CREATE ROLE {role} LOGIN",
        f"ALTER ROLE {role} SET default_transaction_read_only = on",
        f"GRANT USAGE ON SCHEMA {memory.namespace} TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {memory.namespace} TO {role}",
    )
    url = memory.url.replace("//postgres@", f"//{role}@", 1)
    connection = await asyncpg.connect(memory.url)
    state = "SELECT array_agg(xmin::text || ctid::text ORDER BY ctid) FROM recollect_{}"
    tables = ("messages", "sessions", "turns")
    before = [await connection.fetchval(state.format(table)) for table in tables]
    report = await audit(url, rate=None)
    assert (report.messages, report.counts) == (10, {})
    assert [await connection.fetchval(state.format(table)) for table in tables] == before
    await connection.close()
