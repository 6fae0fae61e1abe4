"""Soft deletes, and a second query for the latest messages, which does not ask what is deleted."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.soft_deletes import SoftDeletes, prepare
from tests.planted.correct.soft_deletes import factory as twin
from tests.planted.planted import Planted
from tests.planted.postgres_rows import pool_of

__all__ = ["prepare", "twin"]

PLANTED = Planted("postgres", "default", "none", "forget", ("resurrected",), variant="one-writer")


class LatestShowsTheDeleted(SoftDeletes):
    async def history(self, session: str, last: int | None = None) -> list[Any]:
        if last is None:
            return await super().history(session)
        return await self.latest("session = $1", session, last)


async def factory(endpoint: Endpoint) -> LatestShowsTheDeleted:
    return LatestShowsTheDeleted(await pool_of(endpoint))
