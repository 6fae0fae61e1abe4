"""The gate in front of PostgreSQL: no statement gets a transaction that writes, and honest ones pass as they are."""

from collections.abc import Callable, Iterator

import asyncpg
import pytest

from recollect.verify.auditing.existing import _server
from recollect.verify.auditing.gate import ReadGate
from recollect.verify.auditing.statements import reading
from recollect.verify.engines import Engine
from recollect.verify.providers.server_address import postgres_address
from recollect.verify.wire import pgwire

TABLE = "audit_gate"
WRITE = f"INSERT INTO {TABLE} VALUES ('written')"
OFF = "'off', false)"
ATTACKS = [
    f"BEGIN READ WRITE; {WRITE}; COMMIT",
    f"BEGIN READ/**/WRITE; {WRITE}; COMMIT",
    f"start transaction isolation level serializable, read -- only\n write; {WRITE}; COMMIT",
    f"BEGIN; SET TRANSACTION READ/* a /* nested */ one */WRITE; {WRITE}; COMMIT",
    f"BEGIN; SET LOCAL transaction_read_only = off; {WRITE}; COMMIT",
    f'BEGIN; SET "Transaction_Read_Only" TO off; {WRITE}; COMMIT',
    f"BEGIN; RESET transaction_read_only; {WRITE}; COMMIT",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "SET default_transaction_read_only = off",
    "SET/**/default_transaction_read_only/**/TO/**/off",
    f"SELECT set_config('default_transaction_read_only', {OFF}",
    f"SELECT set_config('default_transaction_' || 'read_only', {OFF}",
    f"SELECT set_config('default_transaction_'\n'read_only', {OFF}",
    f"SELECT set_config(E'default_transaction_read\\137only', {OFF}",
    f'SELECT pg_catalog . "set_config" /* */ ($$default_transaction_read_only$$, {OFF}',
    f"SELECT set_config((SELECT 'default_transaction_read_only'), {OFF}",
    f"SELECT U&\"set\\005Fconfig\"('default_transaction_read_only', {OFF}",
    "UPDATE pg_settings SET setting = 'off' WHERE name = 'default_transaction_read_only'",
    f"DO $$ BEGIN PERFORM set_config('default_transaction_read_only', {OFF}; COMMIT; {WRITE}; END $$",
    f"PREPARE p AS SELECT set_config('default_transaction_read_only', {OFF}; EXECUTE p",
    f"SET standard_conforming_strings = off; SELECT '\\'', set_config(';', 'x', false); {WRITE}; --'",
]
HONEST = [
    b"SELECT 1",
    b"SELECT set_config('jit', 'off', false), current_setting('transaction_read_only')",
    b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SELECT * FROM t WHERE a = 'read write; set x'; COMMIT",
    b'SET search_path TO a, "B"; SHOW transaction_read_only',
    b"select 'it''s', $1, $tag$ DO; CALL x() $tag$, E'a\\'b' /* DO */ -- CALL\n from t where a -> 'x' = $2",
    b"WITH x AS (SELECT 1) SELECT * FROM x; ;",
    b"COPY t TO STDOUT",
    b"CREATE TABLE IF NOT EXISTS t (a int)",
    b"",
]


@pytest.fixture(scope="module")
def url(engine_of: Callable[[str], Engine]) -> Iterator[str]:
    """Of the gate; behind it is a table with one row."""
    server = engine_of("postgres").endpoint.url
    with pgwire.Connection(postgres_address(server)) as session:
        session.ask(f"CREATE TABLE {TABLE} (text text); INSERT INTO {TABLE} VALUES ('kept')")
        gate = ReadGate(_server(server, 10.0))
        yield gate.in_front().url
        gate.close()
        session.ask(f"DROP TABLE {TABLE}")


def _rows(server: str) -> object:
    with pgwire.Connection(postgres_address(server)) as session:
        return session.ask(f"SELECT text FROM {TABLE}")


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_is_written(attack: str, url: str, engine_of: Callable[[str], Engine]) -> None:
    with pgwire.Connection(postgres_address(url)) as session:
        for statement in (attack, "ROLLBACK", WRITE):
            try:
                session.ask(statement)
            except pgwire.PgError:
                continue
            assert statement != WRITE, "the session writes now"
    assert _rows(engine_of("postgres").endpoint.url) == [("kept",)]


async def test_a_name_that_is_given_as_a_parameter(url: str) -> None:
    connection = await asyncpg.connect(url)
    with pytest.raises(asyncpg.PostgresError, match="recollect-audit-only-reads: set_config"):
        await connection.fetch("SELECT set_config($1, $2, false)", "default_transaction_read_only", "off")
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await connection.execute(WRITE)
    assert await connection.fetchval(f"SELECT text FROM {TABLE} WHERE text <> $1", "") == "kept"
    await connection.close()


@pytest.mark.parametrize("sql", HONEST)
def test_what_only_reads_is_passed_on_as_it_is(sql: bytes) -> None:
    assert reading(sql) == sql


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        (b"DO $$ BEGIN END $$", b"do"),
        (b"select 1; call x()", b"call"),
        (b"VACUUM t", b"vacuum"),
        (b"ALTER SYSTEM SET fsync = off", b"alter system"),
        (b"COPY t TO PROGRAM 'sh'", b"copy"),
        (b"select 'never ends", b"a string without an end"),
        (b"select /* never ends", b"a comment without an end"),
        (b"select $a$ never ends $b$", b"a string without an end"),
    ],
)
def test_what_changes_something_in_a_transaction_that_reads_is_refused(sql: bytes, word: bytes) -> None:
    assert reading(sql) == b'SELECT "recollect-audit-only-reads: %s"()' % word
