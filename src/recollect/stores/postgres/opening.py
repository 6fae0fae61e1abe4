"""Opening a PostgreSQL store: is this a server that can keep memory, and is its schema current?"""

import asyncio
import time
import uuid

import asyncpg

from recollect.aside import aside
from recollect.errors import CannotOpen, EngineUnavailable
from recollect.store import Options
from recollect.stores.postgres.durability import PostgresSettings, read_settings
from recollect.stores.postgres.errors import (
    DRIVER_ERRORS,
    POOLED,
    POOLED_CURE,
    STATEMENT_MODE_CURE,
    read_error,
)
from recollect.stores.postgres.hosts import Connection, connect, connect_newest, prepares, remaining_s
from recollect.stores.postgres.schema import RELEASE_SCHEMA, Version, read_version, usable

SERVER_VERSION_MIN = 150_000
SHARED_CHECK_S = 1.0
SHARED_LOOKS = 16
BUSY_LOOKS = 50
"""A second connection may take as long as this many answers on the first, if that is longer."""
_STATEMENT = "recollect_"
"""How the names of statements begin that a store prepares to find out whether its session is shared."""

_SERVER = """
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_schema() IS NULL,
       current_setting('search_path'), current_setting('default_transaction_isolation'),
       current_setting('synchronous_commit')"""


async def open_schema(url: str, options: Options) -> tuple[str, PostgresSettings, int]:
    """Brings the schema up to date if needed; returns the store's identity, the engine's settings and its timeline."""
    deadline = time.monotonic() + options.timeout_s
    connected = await connect_newest(url, deadline)
    connection = connected.connection
    try:
        await _check_place(connection, options.timeout_s)
        await check_not_shared(connection, url, deadline)
        found = await read_version(connection, options.timeout_s)
        version = usable(found) or await _migrated(url, options, connection, found, deadline)
        return version.identity, await read_settings(connection, options.timeout_s), connected.timeline or 0
    except DRIVER_ERRORS as error:
        raise read_error(error) from error
    finally:
        await _end(connection)


async def _migrated(
    url: str, options: Options, connection: Connection, found: Version | None, deadline: float
) -> Version:
    if not options.migrate:
        state = "has no schema yet" if found is None else f"has schema {found.schema}"
        raise CannotOpen(
            f"the memory {state}, this release needs schema {RELEASE_SCHEMA}, and migrate=False does not "
            "allow changing it: run `recollect migrate URL` first"
        )
    timeout_s = max(remaining_s(deadline), 1.0)
    await aside(_migrate, url, timeout_s)
    version = usable(await read_version(connection, options.timeout_s))
    if version is None:
        raise CannotOpen(
            "the schema was migrated but cannot be found: does search_path name the same schema twice?"
        )
    return version


def _migrate(url: str, timeout_s: float) -> None:
    from recollect.stores.postgres.migrations import migrate  # Alembic is slow to import and rarely needed

    migrate(url, timeout_s)


async def _check_place(connection: Connection, timeout_s: float) -> None:
    row = await connection.fetchrow(_SERVER, timeout=timeout_s)
    assert row is not None
    server_version, in_recovery, no_schema, search_path, *_ = row
    if server_version < SERVER_VERSION_MIN:
        raise CannotOpen(f"PostgreSQL {server_version // 10_000} is too old; 15 or newer is needed")
    if in_recovery:
        raise CannotOpen(
            "this is a standby, which cannot be written to; open the primary, with read_url=this one"
        )
    if no_schema:
        raise CannotOpen(f"no schema of search_path {search_path!r} exists; CREATE SCHEMA it first")


async def check_not_shared(connection: Connection, url: str, deadline: float) -> None:
    """Refuses a pooler that gives one server session to several connections.

    Prepared statements of different connections would then have the same names: at best one is missing, at worst the
    wrong one is run. There is a pooler if the server's process id is not the one this connection was told. A pooler
    that keeps statements apart has renamed ours, which shows within a transaction. Otherwise the session is shared if
    this connection ever misses its statement, or a second connection ever finds it. Stores that open at the same time
    occupy sessions, so one look proves little: both connections look many times, side by side.

    Without prepared statements sharing does no harm, as long as a transaction has its session to itself.
    """
    if connection.get_server_pid() == await connection.fetchval("SELECT pg_backend_pid()"):
        return
    if not prepares(url):
        if await _refuses_transactions(url, deadline):
            raise CannotOpen(f"PostgreSQL: {STATEMENT_MODE_CURE}")
        return
    name = f"{_STATEMENT}{uuid.uuid4().hex}"
    try:
        async with connection.transaction():
            # Kept in a variable: the driver closes a statement that nothing refers to.
            kept = await connection.prepare("SELECT 1", name=name, timeout=remaining_s(deadline))
            if not await _finds(connection, name, deadline):
                return
        shared = await _is_shared(connection, url, kept.get_name(), deadline)
    except POOLED as error:
        raise CannotOpen(f"PostgreSQL: {POOLED_CURE}") from error
    except asyncpg.ConnectionDoesNotExistError as error:
        if await _refuses_transactions(url, deadline):
            raise CannotOpen(f"PostgreSQL: {POOLED_CURE}") from error
        raise
    if shared:
        raise CannotOpen(f"PostgreSQL: {POOLED_CURE}")


async def _refuses_transactions(url: str, deadline: float) -> bool:
    """Whether BEGIN ends a working connection: statement mode. Old drivers do not pass on the pooler's message."""
    other = await connect(url, deadline)
    try:
        await other.fetchval("SELECT 1", timeout=remaining_s(deadline))
        try:
            await other.execute("BEGIN", timeout=remaining_s(deadline))
        except asyncpg.ConnectionDoesNotExistError:
            return True
    finally:
        await _end(other)
    return False


async def _is_shared(connection: Connection, url: str, name: str, deadline: float) -> bool:
    async def lost() -> bool:
        """Ours is missing, or that of another store which is opening is there too."""
        return await _prepared_here(connection, deadline) != [name]

    begun = time.monotonic()
    if await lost():
        return True
    # What takes long for this connection takes long for a second one too: a busy machine is no proof that it waits.
    patience_s = max(SHARED_CHECK_S, BUSY_LOOKS * (time.monotonic() - begun))
    limit = min(deadline, time.monotonic() + patience_s)
    try:
        other = await connect(url, limit)
    except EngineUnavailable:  # a pool of one session, which this connection has to itself
        return await lost()
    try:
        shared = await _finds(other, name, limit)
        for _ in range(SHARED_LOOKS):
            if shared:
                return True
            shared = any(await asyncio.gather(lost(), _finds(other, name, deadline)))
    except TimeoutError:  # the same, or all sessions are in use: then others have used this one meanwhile
        shared = await lost()
    finally:
        await _end(other)
    return shared


async def _prepared_here(connection: Connection, deadline: float) -> list[str]:
    """What stores that are opening have prepared in the session that this connection has just now."""
    found = f"SELECT name FROM pg_prepared_statements WHERE starts_with(name, '{_STATEMENT}')"
    return [row[0] for row in await connection.fetch(found, timeout=remaining_s(deadline))]


async def _finds(connection: Connection, name: str, deadline: float) -> bool:
    found = "SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE name = $1)"
    return bool(await connection.fetchval(found, name, timeout=remaining_s(deadline)))


async def check_server(connection: Connection, commit_mode: str, timeout_s: float) -> None:
    """Prepares a new connection for writing: the isolation level the statements assume, and the commit mode.

    Both are safe even if a pooler hands out other sessions: appends check the mode, and an isolation level above
    read committed turns a race into an error that says nothing was written.
    """
    row = await connection.fetchrow(_SERVER, timeout=timeout_s)
    assert row is not None
    *_, isolation, mode = row
    if isolation != "read committed":
        await connection.execute("SET default_transaction_isolation = 'read committed'", timeout=timeout_s)
    if mode != commit_mode:
        await connection.execute("SELECT set_config('synchronous_commit', $1, false)", commit_mode)


async def _end(connection: Connection) -> None:
    try:
        await connection.close(timeout=1.0)
    except DRIVER_ERRORS:
        connection.terminate()
