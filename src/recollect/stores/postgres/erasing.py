"""Erases a session from PostgreSQL's tables, and from the files under them.

A deleted row stays in its page until VACUUM, and its bytes until the page is reused, so the tables are rewritten
(``VACUUM FULL``), which locks them meanwhile. VACUUM keeps the rows for transactions older than the deletion, so those
are waited for. The planner's statistics hold sample values, so they are recreated as well. The write-ahead log keeps
what was written until its segments are recycled, and cannot be rewritten.

The transaction that deletes leaves a trace (`recollect.erasure`): a row of `recollect_sessions` that is no session's.
"""

import asyncio
import time
from collections.abc import Sequence

import asyncpg

from recollect.erasure import NO_ID, TRACE_LIFE, TRACES_MAX, Unreached, used_again
from recollect.stores.postgres.abandoned_waits import WAIT_FOR_STANDBYS
from recollect.stores.postgres.errors import row_changed
from recollect.stores.postgres.schema import DROP_TRACES, INTACT, LEAVE_TRACE

TABLES = ("recollect_messages", "recollect_turns", "recollect_about", "recollect_sessions")
POLL_S = 0.05

_DELETE = {
    "recollect_messages": "DELETE FROM recollect_messages WHERE session_id = $1",
    "recollect_turns": "DELETE FROM recollect_turns WHERE session_id = $1",
    "recollect_about": "DELETE FROM recollect_about WHERE session_id = $1",
    "recollect_sessions": "DELETE FROM recollect_sessions WHERE id = $1",
}

_LOCK = (
    f"SELECT s.id, {INTACT}, s.last FROM recollect_sessions s WHERE sha256(s.name) = sha256($1) FOR UPDATE"
)

_OLDER = """
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid()
               AND (age(backend_xmin) >= age($1::text::xid) OR age(backend_xid) >= age($1::text::xid)))
    OR EXISTS (SELECT FROM pg_replication_slots WHERE age(xmin) >= age($1::text::xid))
    OR EXISTS (SELECT FROM pg_prepared_xacts WHERE age(transaction) >= age($1::text::xid))"""


async def erase_rows(
    connection: asyncpg.Connection, key: bytes, expect: int | None, trace: bytes, timeout_s: float
) -> str:
    """Deletes the session in one transaction, which leaves a trace, and returns that transaction's number."""
    async with connection.transaction():
        tables = await _tables(connection)
        row = await connection.fetchrow(_LOCK, key, timeout=timeout_s)
        if row is not None and not row[1]:
            raise row_changed()
        if row is not None and expect not in (None, row[2]):
            raise used_again()
        for table in tables:
            if row is not None:
                await connection.execute(_DELETE[table], row[0])
        if row is not None:
            await connection.execute(LEAVE_TRACE, NO_ID + trace)
        await connection.execute(DROP_TRACES, TRACE_LIFE, TRACES_MAX)
        await connection.execute(WAIT_FOR_STANDBYS)
        number: str = await connection.fetchval("SELECT pg_current_xact_id()::xid::text")
    return number


async def rewrite_files(
    connection: asyncpg.Connection, deleted_by: str, wait_s: float, tables: Sequence[str] = TABLES
) -> tuple[list[str], list[Unreached]]:
    """What was rewritten, and what was not."""
    reached: list[str] = []
    unreached: list[Unreached] = []
    older = await _wait_for_older(connection, deleted_by, time.monotonic() + wait_s)
    for table in (*await _tables(connection, tables), "pg_statistic"):
        why = await _written_anew(connection, table) or older
        if why is None:
            reached.append(table)
        else:
            unreached.append(Unreached(table, why))
    try:
        await connection.execute("CHECKPOINT")
    except asyncpg.PostgresError:  # the old files are empty already, and go with the next checkpoint
        unreached.append(
            Unreached("pages not written yet", "this role may not CHECKPOINT; the next one is on its way")
        )
    unreached.append(
        Unreached("pg_wal", "the write-ahead log keeps what was written until its segments are recycled")
    )
    if await connection.fetchval("SELECT EXISTS (SELECT FROM pg_stat_replication)"):
        unreached.append(Unreached("the standbys' write-ahead logs", "each recycles its own"))
    if await connection.fetchval("SELECT current_setting('archive_mode') <> 'off'"):
        unreached.append(Unreached("the archive of the write-ahead log", "archive_mode is on"))
    return reached, unreached


async def _tables(connection: asyncpg.Connection, named: Sequence[str] = TABLES) -> list[str]:
    rows = await connection.fetch(
        "SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NOT NULL", list(named)
    )
    return [row[0] for row in rows]


async def _wait_for_older(connection: asyncpg.Connection, deleted_by: str, deadline: float) -> str | None:
    while await connection.fetchval(_OLDER, deleted_by):
        if time.monotonic() > deadline:
            return (
                "a transaction that is older than the erasure may still see the rows; end it, and erase again"
            )
        await asyncio.sleep(POLL_S)
    return None


async def _written_anew(connection: asyncpg.Connection, table: str) -> str | None:
    """Why it failed; None if it worked. VACUUM skips a table owned by somebody else with only a warning."""
    before = await connection.fetchval("SELECT pg_relation_filenode($1::regclass)", table)
    try:
        if table != "pg_statistic":
            await connection.execute(f"ANALYZE {table}")
        await connection.execute(f"VACUUM FULL {table}")
    except asyncpg.PostgresError as error:
        return f"VACUUM FULL failed: {error}"
    if await connection.fetchval("SELECT pg_relation_filenode($1::regclass)", table) != before:
        return None
    return "this role may not VACUUM it; let its owner run VACUUM FULL"
