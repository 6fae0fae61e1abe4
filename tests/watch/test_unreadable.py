"""An engine that answers and cannot be read: what is broken is told, and what only keeps the watch out is no loss."""

import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from recollect.doctor import examine
from recollect.doctor.diagnosis import LoginRefused
from recollect.verify.engines import Engine
from tests.audit.memories import Memory, memory_of
from tests.watch.beside import Beside, beside


async def broken(watched: Beside) -> None:
    [alarm] = await watched.told()
    assert alarm.name == "damaged"
    assert "the engine answers, and its memory cannot be read" in alarm.sentence
    assert await watched.rounds(2) == []  # it is told once


async def test_a_table_that_is_gone_and_back(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    for kind in ("sqlite", "postgres"):
        memory = await memory_of(kind, engine_of, tmp_path)

        async def hands(statement: str, memory: Memory = memory) -> None:
            await memory.postgres(statement) if memory.kind == "postgres" else memory.sqlite(statement)

        async with beside(memory.url, tmp_path / f"{kind}.db", patience_s=0.0) as watched:
            await hands("ALTER TABLE recollect_messages RENAME TO elsewhere")
            await broken(watched)
            await hands("ALTER TABLE elsewhere RENAME TO recollect_messages")
            await watched.heard()
            assert [event["name"] for event in watched.events if event["event"] == "over"] == ["damaged"]


async def test_a_file_that_was_cut_off(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await memory_of("sqlite", engine_of, tmp_path)
    async with beside(memory.url, tmp_path / "memory.db") as watched:
        await watched.canary.close()  # or its log would mend the file
        memory.sqlite("PRAGMA wal_checkpoint(TRUNCATE)")
        with memory.path.open("r+b") as file:
            file.truncate(3 * 4096)
        await broken(watched)


async def test_a_database_that_was_dropped(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await memory_of("postgres", engine_of, tmp_path)
    name = f"d{uuid.uuid4().hex}"
    await memory.postgres(f"CREATE DATABASE {name}")
    url = urlsplit(memory.engine.endpoint.url)._replace(path=f"/{name}").geturl()
    async with beside(url, tmp_path / "memory.db") as watched:
        await memory.postgres(f"DROP DATABASE {name} WITH (FORCE)")
        assert [alarm.name for alarm in await watched.told()] == ["wiped"]


async def test_a_redis_store_that_has_lost_its_identity(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await memory_of("redis", engine_of, tmp_path)
    async with beside(memory.url, tmp_path / "memory.db") as watched:
        with memory.redis() as hands:
            hands.delete(f"{memory.namespace}:identity")
        [alarm] = await watched.told()
        assert (alarm.name, "now it has no identity" in alarm.sentence) == ("replaced", True)
        assert await watched.rounds(3) == []


async def test_a_redis_key_of_another_kind(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await memory_of("redis", engine_of, tmp_path)
    async with beside(memory.url, tmp_path / "memory.db") as watched:
        with memory.redis() as hands:
            hands.set(memory.key(watched.canary.sessions[0].replace("/", "%2F"), "m"), "another kind")
        assert [alarm.name for alarm in await watched.told()] == ["damaged"]


async def test_a_password_that_was_changed_is_no_loss(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    for kind in ("redis", "postgres"):
        memory, endpoint, name = (
            await memory_of(kind, engine_of, tmp_path),
            engine_of(kind).endpoint,
            f"u{uuid.uuid4().hex}",
        )
        url = f"{urlsplit(endpoint.url).scheme}://{name}:first@127.0.0.1:{endpoint.port}"
        if kind == "redis":
            url += f"/0?prefix={memory.namespace}"
            with memory.redis() as hands:
                hands.acl_setuser(
                    name, enabled=True, passwords=["+first"], keys=["*"], channels=["*"], commands=["+@all"]
                )
        else:
            url += f"/{urlsplit(memory.url).path.strip('/')}?search_path={memory.namespace}"
            await memory.postgres(
                f"CREATE ROLE {name} LOGIN PASSWORD 'first'",
                f"GRANT CREATE, USAGE ON SCHEMA {memory.namespace} TO {name}",
            )
        async with beside(url, tmp_path / f"{kind}.db") as watched:
            await change_password(memory, name)
            watched.watch._settings_at = float("-inf")
            assert await watched.rounds(3) == []
            watched.watch.patience_s = 0.0
            [alarm] = await watched.told()
            assert alarm.name == "unreachable"
            assert "refused the credentials" in alarm.sentence
            assert "first" not in str(watched.events)
        with pytest.raises(LoginRefused, match=name if kind == "postgres" else "invalid username-password"):
            await examine(url)


async def test_a_right_that_was_taken_away_is_no_loss(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    memory = await memory_of("postgres", engine_of, tmp_path)
    role = f"r{memory.namespace}"
    grant = f"GRANT CREATE, USAGE ON SCHEMA {memory.namespace} TO {role}"
    await memory.postgres(f"CREATE ROLE {role} LOGIN", grant)
    url = memory.url.replace("//postgres@", f"//{role}@", 1)
    async with beside(url, tmp_path / "memory.db") as watched:
        await memory.postgres(f"REVOKE ALL ON SCHEMA {memory.namespace} FROM {role}")
        assert await watched.rounds(3) == []
        await memory.postgres(grant)
        await watched.heard()


async def change_password(memory: Memory, name: str) -> None:
    """And everybody has to come in again."""
    if memory.kind == "redis":
        with memory.redis() as hands:
            hands.acl_setuser(name, enabled=True, reset_passwords=True, passwords=["+second"])
            assert isinstance(hands, redis.Redis)
            hands.client_kill_filter(_type="normal", skipme=True)
        return
    await memory.postgres(
        f"ALTER ROLE {name} PASSWORD 'second'",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'",
    )


async def test_a_table_that_is_no_longer_logged(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    memory = await memory_of("postgres", engine_of, tmp_path)
    async with beside(memory.url, tmp_path / "memory.db") as watched:
        await watched.canary.look_at_settings()
        await memory.postgres("CREATE UNLOGGED TABLE of_the_application ()")
        assert await watched.canary.look_at_settings() is None
        await memory.postgres("ALTER TABLE recollect_messages SET UNLOGGED")
        try:
            [alarm] = await watched.told()
            assert (alarm.name, "unlogged-tables: 'none'" in alarm.sentence) == ("settings-changed", True)
        finally:
            await memory.postgres("ALTER TABLE recollect_messages SET LOGGED")
