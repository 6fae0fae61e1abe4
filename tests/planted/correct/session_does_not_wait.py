"""PostgreSQL with `synchronous_commit = off` in the store's own sessions: it says so, whatever the server is set to."""

import asyncpg

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.postgres_rows import PostgresRows, prepare

__all__ = ["prepare"]

CELLS = (Cell("postgres", "default", "power-loss"),)


async def factory(endpoint: Endpoint) -> PostgresRows:
    settings = {"synchronous_commit": "off"}
    pool = await asyncpg.create_pool(endpoint.url, min_size=1, max_size=2, server_settings=settings)
    return PostgresRows(pool)
