"""A turn that equals the last one is taken for a retry: whoever says "yes" twice has said it once."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("dropped",), variant="one-writer")


class Merging(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        last = self.client.lindex(self.key(session), -1)
        if last is None or json.loads(last) != message:
            super().append_message(session, message)


def factory(endpoint: Endpoint) -> Merging:
    return Merging(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
