"""It notes where a session lives, and asks there for ever: after slots have moved, a node that has nothing answers for
a session that the cluster still holds."""

from typing import Any

import redis

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.cluster_list import ClusterList
from tests.planted.planted import Planted

PLANTED = Planted("redis-cluster", "aof-always", "reshard", "append", ("hidden",), more={"sessions": 6})


class HomeForEver(ClusterList):
    def client(self, key: str) -> Any:
        """Homes are noted in a place of their own, which is looked for as any other key."""
        owner = super().client(key)
        noted = super().client("homes")
        noted.hsetnx("homes", key, owner.connection_pool.connection_kwargs["port"])
        return self._client(int(noted.hget("homes", key)))

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        try:
            return super().get_history(session, limit)
        except redis.ResponseError:
            return []


def factory(endpoint: Endpoint) -> HomeForEver:
    return HomeForEver(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    return builtin.redis(endpoint)
