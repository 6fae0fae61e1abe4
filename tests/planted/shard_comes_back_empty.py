"""It has no identity: a shard with a new disk is an empty memory, and nobody is told."""

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.cluster_list import ClusterList
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis-cluster",
    "aof-always",
    "lose-shard",
    "append",
    ("silent-reset", "lost-tail"),
    status="exposed",
    twin_status="documented-loss",
    more={"sessions": 1},
)


def factory(endpoint: Endpoint) -> ClusterList:
    return ClusterList(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    return builtin.redis(endpoint)
