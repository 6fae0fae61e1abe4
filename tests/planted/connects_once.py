"""It connects when it opens, and never again: servers that all came back do not help it."""

import asyncpg

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.one_connection import OneConnection
from tests.planted.planted import Planted
from tests.planted.postgres_rows import prepare

__all__ = ["prepare"]

PLANTED = Planted("postgres-ha", "asynchronous", "restart-all", "append", ("does-not-recover",))


async def factory(endpoint: Endpoint) -> OneConnection:
    return OneConnection(await asyncpg.connect(endpoint.url))


def twin(endpoint: Endpoint) -> Opening:
    return builtin.postgres(endpoint)
