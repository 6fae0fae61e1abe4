"""Any error while reading is logged and answered with an empty history: the assistant starts from scratch."""

import logging
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "kill-engine",
    "turns",
    ("hidden", "stale-read", "own-write-missing", "non-monotonic-read"),
)


class Swallowing(RedisList):
    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        try:
            return super().get_history(session, limit)
        except Exception:
            logging.getLogger(__name__).exception("could not read %s", session)
            return []


def factory(endpoint: Endpoint) -> Swallowing:
    return Swallowing(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
