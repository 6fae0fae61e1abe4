"""The table is made when the store opens, as `create_all` has it: with asynchronous commits it is young."""

import asyncpg

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.postgres_rows import PostgresRows, pool_of

CELLS = (
    Cell(
        "postgres",
        "async-commit",
        "power-loss",
        more={"before_s": 0.01, "writers": 1, "readers": 0},
    ),
    Cell("postgres", "async-commit", "kill-engine"),
    Cell("postgres", "default", "wipe-volume"),
)


async def factory(endpoint: Endpoint) -> PostgresRows:
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute("SELECT pg_advisory_lock(1)")  # CREATE … IF NOT EXISTS collides with itself
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS said (id bigserial PRIMARY KEY, session text, role text, content text)"
    )
    await connection.close()
    return PostgresRows(await pool_of(endpoint))
