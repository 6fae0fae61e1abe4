"""Sets the server up by ALTER SYSTEM, with a library that is not installed: it runs on, until its next start."""

import asyncpg

from recollect.verify.engines.endpoint import Endpoint
from tests.planted import postgres_rows
from tests.planted.planted import Planted
from tests.planted.postgres_rows import PostgresRows, pool_of

PLANTED = Planted("postgres", "default", "restart", "turns", ("refuses-to-start",))


async def prepare(endpoint: Endpoint) -> None:
    await postgres_rows.prepare(endpoint)


async def factory(endpoint: Endpoint) -> PostgresRows:
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_cron'")
    await connection.close()
    return PostgresRows(await pool_of(endpoint))


async def twin(endpoint: Endpoint) -> PostgresRows:
    return PostgresRows(await pool_of(endpoint))
