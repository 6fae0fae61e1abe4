"""It loads its script when it opens, and calls it by its digest: a node that was restarted no longer knows it."""

import json
from typing import Any

from recollect.opening import Opening
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.cluster_list import ClusterList
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis-cluster", "aof-always", "kill-restart", "append", ("does-not-recover",), more={"sessions": 1}
)

SCRIPT = "return redis.call('RPUSH', KEYS[1], ARGV[1])"


class ScriptLoadedOnce(ClusterList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        for _, _, port in self._owners:
            self._digest = self._client(port).script_load(SCRIPT)

    def append_message(self, session: str, message: Any) -> None:
        self.client(session).evalsha(self._digest, 1, session, json.dumps(message))


def factory(endpoint: Endpoint) -> ScriptLoadedOnce:
    return ScriptLoadedOnce(endpoint)


def twin(endpoint: Endpoint) -> Opening:
    return builtin.redis(endpoint)
