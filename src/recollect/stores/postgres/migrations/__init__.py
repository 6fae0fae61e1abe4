"""Bringing a PostgreSQL schema up to date, with Alembic.

Everything happens in one transaction under an advisory lock of the schema, so any number of processes may open a store
at once: the first migrates, the others wait and then find nothing to do. Alembic keeps its state in global variables
and blocks, so within a process one migration runs at a time, on a thread with an event loop of its own. SQLAlchemy
only carries the connection; the address is read by asyncpg, as it is when the store is opened.
"""

import asyncio
import threading
import time
from pathlib import Path

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from recollect.errors import CannotOpen, CredentialsRefused, EngineUnavailable
from recollect.stores.postgres.errors import UNREACHABLE, short_reason
from recollect.stores.postgres.hosts import connect, prepares

MIGRATE_TIMEOUT_S = 600.0
"""Long, because migrating a large memory may rewrite it."""
CONNECT_TIMEOUT_S = 30.0
"""A server that is silent, or a group without a primary, is not waited for that long."""

_one_at_a_time = threading.Lock()


def migrate(url: str, timeout_s: float = MIGRATE_TIMEOUT_S) -> None:
    """Brings the schema up to this release's, waiting at most `timeout_s` for others doing the same.

    This is what `recollect migrate URL` does, for pipelines that open stores with ``migrate=False``.
    """
    if not _one_at_a_time.acquire(timeout=timeout_s):
        raise CannotOpen(f"another migration of this process took longer than {timeout_s:g} s")
    try:
        asyncio.run(_migrate(url, timeout_s))
    finally:
        _one_at_a_time.release()


def alembic_config() -> Config:
    config = Config()
    # Alembic treats `%` in options as interpolation, so a `%` in the path is doubled.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


async def _migrate(url: str, timeout_s: float) -> None:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: connect(url, time.monotonic() + min(timeout_s, CONNECT_TIMEOUT_S)),
        poolclass=NullPool,
        connect_args={}
        if prepares(url)
        else {"prepared_statement_cache_size": 0, "prepared_statement_name_func": str},
    )
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade, timeout_s)
    except (EngineUnavailable, CredentialsRefused) as error:
        raise EngineUnavailable(f"cannot migrate: {error}") from error
    except UNREACHABLE as error:
        raise EngineUnavailable(f"cannot migrate: {short_reason(error)}") from error
    except DBAPIError as error:
        raise CannotOpen(
            f"cannot migrate the schema: {short_reason(error.orig)}. The role needs the right to create tables and "
            "functions in a schema of its search_path; or let another role run `recollect migrate URL`, and open "
            "with migrate=False"
        ) from error
    except CommandError as error:
        raise CannotOpen(f"the schema was made by a newer release ({error}): upgrade recollect") from error
    finally:
        await engine.dispose()


def _upgrade(connection: sqlalchemy.Connection, timeout_s: float) -> None:
    connection.execute(
        sqlalchemy.text("SELECT set_config('lock_timeout', :limit, true)"),
        {"limit": f"{max(1, round(timeout_s * 1000))}ms"},
    )
    connection.execute(
        sqlalchemy.text("SELECT pg_advisory_xact_lock(hashtextextended('recollect ' || current_schema(), 0))")
    )
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
