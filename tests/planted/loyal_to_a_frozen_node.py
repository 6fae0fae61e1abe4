"""It waits for the node that had its session, however long it is frozen, and asks it when it is a replica too."""

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.first_map_for_ever import FirstMap
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis-cluster",
    "aof-always",
    "pause",
    "append",
    ("does-not-recover", "unreadable"),
    twin_status="documented-loss",  # what the woken primary did before it learned that it is none any more
    more={"sessions": 1},
)


def factory(endpoint: Endpoint) -> FirstMap:
    return FirstMap(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    return builtin.redis(endpoint)
