"""The doctor on live PostgreSQL servers: policies, roles, databases, tables, standbys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import asyncpg
import pytest

from recollect.doctor import Diagnosis, Symptom, examine
from recollect.verify.engines.postgres import PostgresEngine
from tests.doctor.bytes import contents
from tests.stores.postgres_place import Connection, started, until


def named(diagnosis: Diagnosis) -> dict[str, Symptom]:
    return {symptom.name: symptom for symptom in diagnosis.findings if symptom.level != "note"}


def url_of(engine: PostgresEngine, role: str = "postgres", database: str = "postgres", more: str = "") -> str:
    url = engine.endpoint.socket_url
    assert url is not None
    return url.replace("//postgres@/postgres", f"//{role}@/{database}", 1) + more


@pytest.fixture(scope="module")
def engine() -> Iterator[PostgresEngine]:
    made = started()
    yield made
    made.close()


@pytest.fixture
async def direct(engine: PostgresEngine) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url_of(engine))
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    ("policy", "code", "name", "window_s"),
    [
        ("default", 0, None, None),
        ("async-commit", 1, "asynchronous-commit", 0.6),
        ("fsync-off", 1, "fsync-off", None),
    ],
)
async def test_each_policy(policy: str, code: int, name: str | None, window_s: float | None) -> None:
    engine = started(policy=policy)
    try:
        diagnosis = await examine(url_of(engine))
    finally:
        engine.close()
    assert (diagnosis.engine, diagnosis.version, diagnosis.policy) == ("postgres", engine.version, policy)
    assert diagnosis.exit_code == code
    found = named(diagnosis)
    assert list(found) == ([] if name is None else [name])
    if name is not None:
        assert found[name].window_s == window_s
        assert found[name].window
        # Our engine has it on its command line, which ALTER SYSTEM cannot override.
        assert "command line" in found[name].procedure[0]
        assert "and restart it cleanly" in found[name].procedure[0]


async def test_of_a_role_of_a_database_and_of_both(engine: PostgresEngine, direct: Connection) -> None:
    await direct.execute('CREATE ROLE "App Role" LOGIN')
    await direct.execute("CREATE DATABASE chat")
    changes = {
        "role App Role": 'ALTER ROLE "App Role" SET synchronous_commit = off',
        "database chat": "ALTER DATABASE chat SET synchronous_commit = off",
        "role App Role in database chat": 'ALTER ROLE "App Role" IN DATABASE chat SET synchronous_commit = off',
    }
    for whose, change in changes.items():
        await direct.execute(change)
        diagnosis = await examine(url_of(engine))
        assert diagnosis.policy == "default"  # this address is not concerned
        (symptom,) = [found for found in diagnosis.findings if found.level == "loss"]
        assert whose in symptom.sentence
        assert "(this address does)" not in symptom.sentence
        assert symptom.window_s == 0.6
        # As that role, in that database, it is.
        own = await examine(url_of(engine, role="App%20Role", database="chat"))
        assert own.policy == "async-commit"
        (concerned,) = [found for found in own.findings if found.level == "loss"]
        assert "(this address does)" in concerned.sentence
        # The first step of the procedure is the cure.
        await direct.execute(symptom.procedure[0])
        assert (await examine(url_of(engine))).exit_code == 0


async def test_the_address_itself_asks_for_it(engine: PostgresEngine) -> None:
    diagnosis = await examine(url_of(engine, more="&synchronous_commit=off"))
    found = named(diagnosis)["asynchronous-commit"]
    assert "out of the address" in found.procedure[0]


async def test_the_window_follows_the_writers_delay(engine: PostgresEngine, direct: Connection) -> None:
    async def window_s() -> float | None:
        diagnosis = await examine(url_of(engine, more="&synchronous_commit=off"))
        return named(diagnosis)["asynchronous-commit"].window_s

    assert await window_s() == 0.6
    await direct.execute("ALTER SYSTEM SET wal_writer_delay = '1500ms'")
    await direct.execute("SELECT pg_reload_conf()")
    try:
        await until(lambda: _is(window_s(), 4.5), "a window of three times 1.5 s")
    finally:
        await direct.execute("ALTER SYSTEM RESET wal_writer_delay")
        await direct.execute("SELECT pg_reload_conf()")


async def _is(asked: Awaitable[float | None], expected: float) -> bool:
    return await asked == expected


async def test_unlogged_tables(engine: PostgresEngine, direct: Connection) -> None:
    await direct.execute('CREATE UNLOGGED TABLE "Memory of all" (text text)')
    found = named(await examine(url_of(engine)))
    assert list(found) == ["unlogged-tables"]
    for step in found["unlogged-tables"].procedure:
        await direct.execute(step)
    assert (await examine(url_of(engine))).exit_code == 0


async def test_standbys_that_nobody_waits_for() -> None:
    engine = started()
    try:
        replica = engine.replica()
        found = named(await examine(url_of(engine)))
        assert list(found) == ["failover"]
        assert "synchronous_standby_names" in found["failover"].procedure[0]
        url = replica.endpoint.socket_url
        assert url is not None
        assert (await examine(url)).exit_code == 3
        replica.close()
    finally:
        engine.close()


async def test_a_role_without_rights_suffices_and_nothing_changes(
    engine: PostgresEngine, direct: Connection
) -> None:
    await direct.execute(
        "CREATE TABLE memory AS SELECT n, md5(n::text) AS text FROM generate_series(1, 500) n"
    )
    await direct.execute("CREATE ROLE looker LOGIN")
    await direct.execute("ALTER ROLE looker SET default_transaction_read_only = on")
    await direct.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    looker = await asyncpg.connect(url_of(engine, role="looker"))
    for statement in (
        "INSERT INTO memory VALUES (0, '')",
        "CREATE TABLE other (n int)",
        "SELECT * FROM memory",
    ):
        with pytest.raises(asyncpg.PostgresError):
            await looker.execute(statement)
    await looker.close()
    assert engine.endpoint.path is not None
    await direct.execute("VACUUM FREEZE")  # sets the hint bits, which else the first reader of a row writes
    await direct.execute("CHECKPOINT")
    table = engine.endpoint.path / await direct.fetchval("SELECT pg_relation_filepath('memory')")
    before = (table.read_bytes(), await _rows(direct), _without_log(engine.endpoint.path))

    diagnosis = await examine(url_of(engine, role="looker"))

    await direct.execute("CHECKPOINT")
    assert diagnosis.exit_code == 0
    assert (table.read_bytes(), await _rows(direct), _without_log(engine.endpoint.path)) == before


async def _rows(direct: Connection) -> list[str]:
    queries = (
        "SELECT * FROM memory",
        "SELECT * FROM pg_db_role_setting",
        "SELECT name, setting FROM pg_settings",
    )
    return [str(await direct.fetch(query)) for query in queries]


def _without_log(folder: Path) -> dict[str, str]:
    """Tables and configuration; the write-ahead log and its bookkeeping live on without anybody."""
    return {
        name: digest
        for name, (digest, _) in contents(folder).items()
        if name.endswith(".conf") or (name.startswith("base/") and not name.endswith("pg_internal.init"))
    }
