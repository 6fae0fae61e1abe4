"""A day of memory after the latest message, but only the first sets the expiry: who talks for a day is forgotten."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "clock-forward", "append", ("expired-early",))
DAY_S = 86400


class Renewed(RedisList):
    retention_s = DAY_S

    def append_message(self, session: str, message: Any) -> None:
        with self.client.pipeline(transaction=True) as together:
            together.rpush(self.key(session), json.dumps(message))
            together.expire(self.key(session), DAY_S, nx=self.only_at_first)
            together.execute()

    only_at_first = False


class NotRenewed(Renewed):
    only_at_first = True


def factory(endpoint: Endpoint) -> NotRenewed:
    return NotRenewed(endpoint)


def twin(endpoint: Endpoint) -> Renewed:
    return Renewed(endpoint)
