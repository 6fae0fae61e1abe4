"""Silent losses on live PostgreSQL servers and of SQLite files, each told by its name; and the healthy twins."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from recollect import Message, open_store
from recollect.verify import engines
from recollect.verify.engines import Engine
from tests.audit.memories import Memory, memory_of
from tests.watch.beside import beside, door

OF_THE_CANARY = "(SELECT id FROM recollect_sessions WHERE name LIKE 'recollect-watch%')"


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (f"DELETE FROM recollect_messages WHERE session_id IN {OF_THE_CANARY}", "deleted"),
        ("DELETE FROM recollect_messages WHERE sequence = 2", "deleted"),
        ("DELETE FROM recollect_sessions", "deleted"),
        ("TRUNCATE recollect_messages", "deleted"),
        ("DROP TABLE recollect_meta, recollect_messages", "wiped"),
        ("UPDATE recollect_sessions SET expires_at = now() - interval '1 hour'", "expired-early"),
        ("UPDATE recollect_meta SET identity = gen_random_uuid()", "replaced"),
        (
            "DELETE FROM recollect_messages WHERE sequence > 2; UPDATE recollect_sessions SET last = 2",
            "rolled-back",
        ),
        (
            "UPDATE recollect_messages SET record = overlay(record PLACING 'x' FROM 30) WHERE sequence = 2",
            "damaged",
        ),
    ],
)
async def test_what_others_do_to_postgres(
    engine_of: Callable[[str], Engine], tmp_path: Path, statement: str, name: str
) -> None:
    memory = await memory_of("postgres", engine_of, tmp_path)
    async with beside(memory.url, tmp_path / "memory.db") as watched:
        await memory.postgres("SELECT 1", "VACUUM", "ANALYZE")  # the healthy twin: what operators do
        await watched.heard()
        await memory.postgres(statement)
        assert [alarm.name for alarm in await watched.told()] == [name]
        if name != "wiped":  # half a schema is nothing that a store opens on
            await watched.heard(2)  # it is told once, and the watch goes on


async def test_settings_of_postgres(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await memory_of("postgres", engine_of, tmp_path)
    role = f"r{memory.namespace}"
    await memory.postgres(
        f"CREATE ROLE {role} LOGIN", f"GRANT CREATE, USAGE ON SCHEMA {memory.namespace} TO {role}"
    )
    async with beside(memory.url.replace("//postgres@", f"//{role}@", 1), tmp_path / "memory.db") as watched:
        await watched.canary.look_at_settings()
        await memory.postgres(f"ALTER ROLE {role} SET work_mem = '5MB'")
        assert await watched.canary.look_at_settings() is None
        await memory.postgres(f"ALTER ROLE {role} SET synchronous_commit = off")
        [alarm] = await watched.told()
        assert alarm.name == "settings-changed"
        assert "synchronous_commit: 'on' is now 'off'" in alarm.sentence


@pytest.fixture
def own() -> Iterator[Any]:
    """An engine to be broken."""
    engine = engines.create("postgres", "default")
    engine.start()
    yield engine
    engine.close()


async def test_postgres_restarts_and_an_older_state(own: Any, tmp_path: Path) -> None:
    async with beside(own.endpoint.socket_url, tmp_path / "memory.db") as watched:
        await watched.canary.look_at_settings()
        own.stop()
        shutil.copytree(own.data, tmp_path / "backup", symlinks=True)
        own.start()
        await watched.heard(3)
        own.kill()
        own.start()
        await watched.heard(2)  # the healthy twin: a crash takes nothing
        own.stop()
        shutil.rmtree(own.data)
        shutil.copytree(tmp_path / "backup", own.data, symlinks=True)
        _give_to_owner(own.data)
        own.start()
        for said in watched.memory.said_in(watched.canary.sessions[0]):
            watched.memory.note_said(said._replace(acknowledged_at=said.acknowledged_at - 60))
        assert [alarm.name for alarm in await watched.told()] == ["rolled-back"]
        await watched.heard(3)


def _give_to_owner(folder: Path) -> None:
    """A server does not run as root, and wants its files for itself."""
    parent = folder.parent.stat()
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, parent.st_uid, parent.st_gid, follow_symlinks=False)


async def test_a_failover_of_postgres_with_lag(own: Any, tmp_path: Path) -> None:
    """Without lag: not tried on PostgreSQL, see the Redis test."""
    replica = own.replica()
    primary = [own.endpoint]
    async with door(lambda: (primary[0].host, primary[0].port)) as port:
        url = own.endpoint.url.replace(f":{own.endpoint.port}", f":{port}")
        async with beside(url, tmp_path / "memory.db") as watched:
            started = (await (await watched.canary._source(replica.endpoint.url)).facts()).started_at
            while watched.memory.heard_at() < started + 3:
                await watched.heard()
            replica.pause_replay()
            await watched.heard(5)
            await watched.canary._let_go()
            own.kill()
            primary[0] = replica.promote()
            assert [alarm.name for alarm in await watched.told()] == ["lost-after-failover"]
            await watched.heard(3)
    replica.close()


# ---- SQLite


@pytest.fixture
async def memory(engine_of: Callable[[str], Engine], tmp_path: Path) -> Memory:
    made = await memory_of("sqlite", engine_of, tmp_path)
    async with open_store(made.url) as store:
        await store.append("s", [Message("user", "of the application")])
    return made


async def test_a_job_that_deletes_from_sqlite(memory: Memory, tmp_path: Path) -> None:
    async with beside(memory.url, tmp_path / "watch.db") as watched:
        memory.sqlite("DELETE FROM recollect_messages WHERE place & 4294967295 = 2")
        assert [alarm.name for alarm in await watched.told()] == ["deleted"]
        await watched.heard(3)
        memory.sqlite("UPDATE recollect_sessions SET expires_at = 2000")
        assert [alarm.name for alarm in await watched.told()] == ["expired-early"]


async def test_a_sqlite_file_that_is_gone_swapped_or_older(memory: Memory, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    async with open_store(f"sqlite:///{other}") as store:
        await store.append("s", [Message("user", "of another store")])
    backup = tmp_path / "backup.db"
    async with beside(memory.url, tmp_path / "watch.db") as watched:
        await watched.canary.close()
        shutil.copy(memory.path, backup)
        await watched.heard(5)  # the healthy twin: a backup
        for source, name in ((backup, "rolled-back"), (other, "replaced"), (None, "wiped")):
            await watched.canary.close()
            for suffix in ("", "-wal", "-shm"):
                Path(f"{memory.path}{suffix}").unlink(missing_ok=True)
            if source is not None:
                shutil.copy(source, memory.path)
            assert [alarm.name for alarm in await watched.told()] == [name]
            await watched.heard(3)


async def test_a_driver_that_breaks_in_the_middle_does_not_end_the_watch(
    engine_of: Callable[[str], Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncpg raises an internal error if the server dies at the wrong moment; a watch lives on."""
    memory = await memory_of("postgres", engine_of, tmp_path)
    async with beside(memory.url, tmp_path / "memory.db") as watched:

        def broken(*_: Any, **__: Any) -> Any:
            raise asyncpg.InternalClientError(
                "cannot switch to state 15; another operation (2) is in progress"
            )

        with monkeypatch.context() as patched:
            patched.setattr(asyncpg.Connection, "transaction", broken)
            assert await watched.rounds(1) == []
        assert "closed while it was in use" in watched.watch.reason
        await watched.heard(2)
