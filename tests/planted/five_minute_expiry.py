"""An expiry of five minutes, set for a load test and never taken out."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

WEEK_S = 7 * 86400.0
PLANTED = Planted(
    "redis", "aof-always", "clock-forward", "append", ("expired-early",), more={"retain_s": WEEK_S}
)


class Expiring(RedisList):
    def __init__(self, endpoint: Endpoint, ttl_s: int) -> None:
        super().__init__(endpoint)
        self.ttl_s = ttl_s

    def append_message(self, session: str, message: Any) -> None:
        with self.client.pipeline() as pipeline:
            pipeline.rpush(self.key(session), json.dumps(message))
            pipeline.expire(self.key(session), self.ttl_s)
            pipeline.execute()


def factory(endpoint: Endpoint) -> Expiring:
    return Expiring(endpoint, 300)


def twin(endpoint: Endpoint) -> Expiring:
    return Expiring(endpoint, 8 * 86400)
