"""It takes the answer of a node that no longer has the session for a session that is empty."""

from typing import Any

import redis

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.cluster_list import ClusterList
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis-cluster", "aof-always", "reshard", "append", ("silent-reset", "stale-read"), more={"sessions": 1}
)


class ElsewhereIsNowhere(ClusterList):
    def learn(self) -> None:
        if not self._owners:
            super().learn()

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        try:
            return super().get_history(session, limit)
        except redis.ResponseError:
            return []


def factory(endpoint: Endpoint) -> ElsewhereIsNowhere:
    return ElsewhereIsNowhere(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    return builtin.redis(endpoint)
