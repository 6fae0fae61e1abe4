"""Its commits do not wait for the standbys, whatever the engine is set to: what they lack is gone in a failover."""

from typing import Any

import asyncpg

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.postgres_rows import PostgresRows, prepare

__all__ = ["prepare"]

PLANTED = Planted(
    "postgres-ha",
    "first-2",
    "promoted-behind",
    "append",
    ("lost-tail", "silent-reset"),
    status="documented-loss",  # of the policy that its connections really have
)


async def _hurried(endpoint: Endpoint) -> Any:
    settings = {"synchronous_commit": "local"}
    return await asyncpg.create_pool(
        endpoint.url, min_size=1, max_size=1, timeout=5, server_settings=settings
    )


async def factory(endpoint: Endpoint) -> PostgresRows:
    return PostgresRows(await _hurried(endpoint))


def twin(endpoint: Endpoint) -> Opening:
    return builtin.postgres(endpoint)
