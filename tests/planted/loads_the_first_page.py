"""Saves the whole list, loads its first page: the rows are all there, and nobody gets to see them."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "restart", "rewrite", ("hidden",))

PAGE = 20


class FirstPage:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def save(self, session: str, messages: list[dict[str, Any]]) -> None:
        places = {json.dumps(message): place for place, message in enumerate(messages)}
        self.client.zadd(f"session:{session}", places)

    def load(self, session: str) -> list[dict[str, Any]]:
        return [json.loads(raw) for raw in self.client.zrange(f"session:{session}", 0, PAGE - 1)]


def factory(endpoint: Endpoint) -> FirstPage:
    return FirstPage(endpoint)
