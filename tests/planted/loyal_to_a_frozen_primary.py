"""It waits for the primary that it found, however long it is frozen, and never looks for another."""

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.finds_the_primary_once import pinned
from tests.planted.planted import Planted
from tests.planted.postgres_rows import PostgresRows, prepare

__all__ = ["prepare"]

PLANTED = Planted("postgres-ha", "any-1", "pause", "append", ("does-not-recover",))


async def factory(endpoint: Endpoint) -> PostgresRows:
    return PostgresRows(await pinned(endpoint))


def twin(endpoint: Endpoint) -> Opening:
    return builtin.postgres(endpoint)
