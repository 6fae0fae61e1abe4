"""Its script tells Redis to leave the replicas out, which a single server never notices. A failover by agreement loses
nothing, and still the memory is gone."""

import json
import time
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.cluster_list import ClusterList
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis-cluster",
    "aof-everysec",
    "failover",
    "append",
    ("silent-reset", "lost-tail", "hole"),
    more={"sessions": 1},
)
_PUSH = "return redis.call('RPUSH', KEYS[1], ARGV[1])"


class Scripted(ClusterList):
    script = _PUSH

    def append_message(self, session: str, message: Any) -> None:
        try:
            self.client(session).eval(self.script, 1, session, json.dumps(message))
        except redis.RedisError:
            self.learn()
            raise

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        """A read may be repeated, so the caller need not know that its session has moved."""
        end = time.monotonic() + 5
        while True:
            try:
                return super().get_history(session, limit)
            except redis.RedisError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


class KeptFromReplicas(Scripted):
    script = f"redis.set_repl(redis.REPL_AOF) {_PUSH}"


def factory(endpoint: Endpoint) -> KeptFromReplicas:
    return KeptFromReplicas(endpoint)


def twin(endpoint: Endpoint) -> Scripted:
    return Scripted(endpoint)
