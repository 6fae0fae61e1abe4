"""After a failover by agreement nobody is gone: the old primary answers, with MOVED, and the store asks it for ever."""

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.first_map_for_ever import FirstMap
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis-cluster",
    "aof-always",
    "failover",
    "append",
    ("does-not-recover", "unreadable"),
    more={"sessions": 1},
)


def factory(endpoint: Endpoint) -> FirstMap:
    return FirstMap(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    return builtin.redis(endpoint)
