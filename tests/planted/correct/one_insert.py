"""One INSERT in PostgreSQL, without any retries of its own: when it does not know what became of it, it says so."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.postgres_rows import PostgresRows, pool_of, prepare

__all__ = ["prepare"]

CELLS = (
    Cell("postgres", "default", "none", "contents"),
    Cell("postgres", "default", "lost-ack"),
    Cell("postgres", "async-commit", "power-loss"),
    Cell("postgres", "async-commit", "slow-fsync"),
    Cell(
        "postgres",
        "async-commit",
        "fsync-error",
        more={"before_s": 0.8},
    ),
)


async def factory(endpoint: Endpoint) -> PostgresRows:
    return PostgresRows(await pool_of(endpoint))
