"""What is forgotten stays in its table, marked as deleted, for the auditors."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.postgres_rows import PostgresRows, pool_of
from tests.planted.postgres_rows import prepare as make_table

# The last commits may be lost, and what the table still has of forgotten sessions is not what reads lack.
CELLS = (
    Cell("postgres", "default", "none", "forget"),
    Cell("postgres", "async-commit", "kill-engine", "forget"),
)


async def prepare(endpoint: Endpoint) -> None:
    await make_table(endpoint)
    pool = await pool_of(endpoint)
    await pool.execute("ALTER TABLE said ADD deleted boolean NOT NULL DEFAULT false")
    await pool.close()


class SoftDeletes(PostgresRows):
    async def history(self, session: str, last: int | None = None) -> list[Any]:
        return await self.latest("session = $1 AND NOT deleted", session, last)

    async def latest(self, where: str, session: str, last: int | None) -> list[Any]:
        select = f"SELECT role, content FROM said WHERE {where} ORDER BY id DESC LIMIT $2"
        return [dict(row) for row in reversed(await self.pool.fetch(select, session, last))]

    async def forget(self, session: str) -> None:
        await self.pool.execute("UPDATE said SET deleted = true WHERE session = $1", session)


async def factory(endpoint: Endpoint) -> SoftDeletes:
    return SoftDeletes(await pool_of(endpoint))
