"""Migrations: at open, in the pipeline, by several processes at once; and schemas of other releases."""

import asyncio
import subprocess
import sys
import time
from datetime import timedelta
from typing import NoReturn

import asyncpg
import pytest
from alembic.script import ScriptDirectory
from typer.testing import CliRunner, Result

from recollect import CannotOpen, EngineUnavailable, Message, open_store
from recollect.cli import build
from recollect.stores.postgres import migrations
from recollect.stores.postgres.migrations import alembic_config
from recollect.stores.postgres.schema import RELEASE_SCHEMA
from tests.stores.postgres_place import Place, until

OPEN = """
import asyncio, sys
from recollect import open_store
async def main():
    sys.stdin.readline()
    async with open_store(sys.argv[1]) as store:
        print(store.identity, "alembic" in sys.modules, "sqlalchemy" in sys.modules)
print("ready", flush=True)
asyncio.run(main())
"""


def opener(url: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN, url], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


async def migrated(url: str) -> Result:
    """What `recollect migrate URL` says; on a thread, because it runs an event loop of its own."""
    arguments = ["migrate", url]
    return await asyncio.to_thread(CliRunner().invoke, build(arguments), arguments)


def test_the_release_knows_the_newest_migration() -> None:
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    assert head is not None
    assert int(head) == RELEASE_SCHEMA


async def test_processes_that_open_at_once_do_not_collide(place: Place) -> None:
    processes = [opener(place.url) for _ in range(2)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len({identity for identity, *_ in answers}) == 1


async def test_stores_of_one_process_that_open_at_once_do_not_collide(place: Place) -> None:
    schemas = [f"{place.schema}_{n}" for n in range(3)]
    for name in schemas:
        await place.direct.execute(f"CREATE SCHEMA {name}")
    urls = [place.url.replace(place.schema, name) for name in schemas for _ in range(2)]
    stores = await asyncio.gather(*(open_store(url)._open() for url in urls))
    assert len({store.identity for store in stores}) == 3
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_current_schema_is_opened_without_alembic(place: Place) -> None:
    async with open_store(place.url):
        pass
    answer = await asyncio.to_thread(opener(place.url).communicate, "go\n", 60)
    assert answer[0].split()[1:] == ["False", "False"]


async def test_a_migration_waits_for_another_and_then_gives_up(place: Place) -> None:
    async with place.direct.transaction():
        await place.direct.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('recollect ' || current_schema(), 0))"
        )
        started = time.monotonic()
        with pytest.raises(CannotOpen, match="lock timeout"):
            await open_store(place.url, timeout_s=1.0)
        assert time.monotonic() - started < 10
    async with open_store(place.url):
        pass


async def test_a_silent_server_is_not_waited_for_as_long_as_a_migration_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    async def silent(url: str, deadline: float) -> NoReturn:
        given.append(deadline - time.monotonic())
        raise EngineUnavailable("no answer in time")

    monkeypatch.setattr(migrations, "connect", silent)
    with pytest.raises(EngineUnavailable, match="cannot migrate: no answer in time"):
        await asyncio.to_thread(migrations.migrate, "postgresql://one,two/db")
    assert given[0] <= migrations.CONNECT_TIMEOUT_S


async def test_opted_out_the_pipeline_migrates(place: Place) -> None:
    with pytest.raises(CannotOpen, match="recollect migrate"):
        await open_store(place.url, migrate=False)
    assert await place.direct.fetchval("SELECT to_regclass('recollect_meta')") is None
    for _ in range(2):
        result = await migrated(place.url)
        assert result.exit_code == 0, result.output
    async with open_store(place.url, migrate=False) as store:
        await store.append("s", [Message("user", "x")])


async def test_what_cannot_be_migrated_is_said(place: Place) -> None:
    missing = place.url.replace(place.schema, "no_such_schema")
    for url, words in (
        ("redis://localhost", "only postgresql://"),
        ("postgresql://me:hunter2@127.0.0.1:1/db", "cannot migrate"),
        (missing, "search_path"),
    ):
        result = await migrated(url)
        assert result.exit_code == 2
        assert words in result.output
        assert "hunter2" not in result.output
    with pytest.raises(CannotOpen, match="CREATE SCHEMA"):
        await open_store(missing)


async def test_a_role_without_rights_is_told_what_it_needs(place: Place) -> None:
    role = f"poor_{place.schema}"
    await place.direct.execute(f"CREATE ROLE {role} LOGIN")
    await place.direct.execute(f"GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    with pytest.raises(CannotOpen, match="recollect migrate"):
        await open_store(place.url_as(role))
    async with open_store(place.url):
        pass
    await place.direct.execute(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place.schema} TO {role}"
    )
    async with open_store(place.url_as(role), ttl=timedelta(hours=1), refresh="read") as store:
        await store.append("s", [Message("user", "x")], turn="t")
        await store.append("s", [Message("user", "y")], turn="u")
        assert len(await store.history("s")) == 2
        await store.forget("s")
        assert await store.sweep() == 0


async def test_a_newer_schema_is_used_if_it_allows_it(place: Place) -> None:
    async with open_store(place.url) as store:
        await store.append("s", [Message("user", "x")])
    await place.direct.execute("UPDATE recollect_version SET version_num = '0007'")
    async with open_store(place.url) as store:
        assert len(await store.history("s")) == 1
    result = await migrated(place.url)
    assert result.exit_code == 2
    assert "newer release" in result.output
    await place.direct.execute("UPDATE recollect_meta SET oldest_release_schema = 5")
    with pytest.raises(CannotOpen, match="knows schema 5"):
        await open_store(place.url)
    await place.direct.execute("UPDATE recollect_version SET version_num = '0#03'")
    with pytest.raises(CannotOpen, match="holds '0#03', which is no version"):
        await open_store(place.url)


async def test_a_failed_migration_leaves_nothing(place: Place) -> None:
    await place.direct.execute("CREATE TABLE recollect_turns (other integer)")
    with pytest.raises(CannotOpen, match="already exists"):
        await open_store(place.url)
    assert await place.direct.fetchval("SELECT to_regclass('recollect_sessions')") is None
    await place.direct.execute("DROP TABLE recollect_turns")
    async with open_store(place.url) as store:
        await store.append("s", [Message("user", "x")])


async def test_no_connection_is_left_behind(place: Place) -> None:
    async with open_store(place.url) as store:
        await asyncio.gather(*(store.append(f"s{n}", [Message("user", "x")]) for n in range(20)))

    async def none_left() -> bool:
        rows: list[asyncpg.Record] = await place.direct.fetch(
            "SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return not rows

    await until(none_left, "all connections of the store ended")
