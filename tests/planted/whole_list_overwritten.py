"""Two workers load, add and save the whole list: the later one overwrites the earlier one's message."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "rewrite", ("lost-update",))


class WholeList:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def save(self, session: str, messages: list[dict[str, Any]]) -> None:
        self.client.set(f"session:{session}", json.dumps(messages))

    def load(self, session: str) -> list[dict[str, Any]]:
        raw = self.client.get(f"session:{session}")
        return json.loads(raw) if raw else []


def factory(endpoint: Endpoint) -> WholeList:
    return WholeList(endpoint)
