"""It looks for the primary when it opens, and never again: after a switchover it goes on asking a standby."""

from typing import Any

import asyncpg

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.postgres_rows import PostgresRows, pool_of, prepare

__all__ = ["prepare"]

PLANTED = Planted("postgres-ha", "any-1", "failover", "append", ("does-not-recover",))


async def pinned(endpoint: Endpoint) -> Any:
    for node in endpoint.nodes:
        pool = await asyncpg.create_pool(node, min_size=1, max_size=1, timeout=5)
        if not await pool.fetchval("SELECT pg_is_in_recovery()"):
            return pool
        await pool.close()
    raise ConnectionError("no primary among the hosts")


async def factory(endpoint: Endpoint) -> PostgresRows:
    return PostgresRows(await pinned(endpoint))


async def twin(endpoint: Endpoint) -> PostgresRows:
    """Every new connection looks again."""
    return PostgresRows(await pool_of(endpoint))
