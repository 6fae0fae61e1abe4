"""It believes a primary alone: one that is cut off from its replica acknowledges what is lost when it comes back."""

from recollect.opening import Opening, open_store
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.cluster_list import ClusterList
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis-cluster",
    "aof-always",
    "isolate-primary",
    "append",
    ("lost-tail",),
    status="documented-loss",
    twin_status="documented-loss",  # what nobody acknowledged may be seen, lost, and written again further on
    twin_without=("lost-tail", "hole", "silent-reset"),
    more={"sessions": 1},
)


def factory(endpoint: Endpoint) -> ClusterList:
    return ClusterList(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    """Acknowledged is what the replica has too."""
    return open_store(endpoint.url, timeout_s=5.0, replicas=1)
