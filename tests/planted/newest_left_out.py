"""A slice that ends one too early: of a session longer than the limit, the newest message is not given."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "none",
    "turns",
    ("own-write-missing", "stale-read", "dropped"),
    variant="one-writer",
)


class NewestLeftOut(RedisList):
    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        everything = super().get_history(session, 0)
        return everything[-limit:-1] if len(everything) > limit else everything


def factory(endpoint: Endpoint) -> NewestLeftOut:
    return NewestLeftOut(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
