"""It takes the first host of its address that accepts writes: of two primaries the old one, which is thrown away."""

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.postgres_rows import PostgresRows, pool_of, prepare

__all__ = ["prepare"]

PLANTED = Planted(
    "postgres-ha",
    "asynchronous",
    "two-primaries",
    "append",
    ("lost-tail", "hole", "silent-reset"),
    status="documented-loss",  # the engine's own documentation says that two primaries lose data
)


async def factory(endpoint: Endpoint) -> PostgresRows:
    return PostgresRows(await pool_of(endpoint))


def twin(endpoint: Endpoint) -> Opening:
    """Asks all of them, and takes the newest timeline."""
    return builtin.postgres(endpoint)
