"""It learns once who owns what: after a failover it goes on asking the node that was the primary."""

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.cluster_list import ClusterList
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis-cluster",
    "aof-always",
    "node-kill",
    "append",
    ("does-not-recover", "unreadable"),
    more={"sessions": 1},
)


class FirstMap(ClusterList):
    def learn(self) -> None:
        if not self._owners:
            super().learn()


def factory(endpoint: Endpoint) -> FirstMap:
    return FirstMap(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    return builtin.redis(endpoint)
