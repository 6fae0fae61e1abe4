"""Saves the whole list, loads its first page: the rows are all there, and nobody gets to see them."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

# More than a page, on a busy machine too.
PLANTED = Planted("redis", "aof-always", "restart", "rewrite", ("hidden",), more={"session_messages": 12})


class Paged:
    """For one writer: two that save whole lists would put their messages in each other's places."""

    traits = ("single_writer",)

    def __init__(self, endpoint: Endpoint, last: int) -> None:
        self.last = last
        self.client: Any = connect(endpoint)

    def save(self, session: str, messages: list[dict[str, Any]]) -> None:
        places = {json.dumps(message): place for place, message in enumerate(messages)}
        self.client.zadd(f"session:{session}", places)

    def load(self, session: str) -> list[dict[str, Any]]:
        return [json.loads(raw) for raw in self.client.zrange(f"session:{session}", 0, self.last)]


def factory(endpoint: Endpoint) -> Paged:
    return Paged(endpoint, last=9)


def twin(endpoint: Endpoint) -> Paged:
    return Paged(endpoint, last=-1)
